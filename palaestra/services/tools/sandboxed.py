"""The sandbox as a tool: a model runs programs, each in an empty world of its own."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from palaestra.errors import Fault, UserError
from palaestra.services.sandbox import Limits, Ran, run_program, sandbox_kind
from palaestra.services.threads import run_in_thread
from palaestra.services.tools.base import ToolResult, failure, wait_for
from palaestra.types import ToolSchema

PROPERTIES = {"code": {"type": "string", "description": "the program"}}
SILENT = "(nothing was printed)"
GRACE = 30.0  # seconds beyond a program's own in which the sandbox must answer


class PythonTool:
    """`python(code)`: what the program printed. Raises UserError where the sandbox cannot run."""

    schema = ToolSchema(
        name="python",
        description="Runs a Python program and shows what it printed.",
        parameters=json.dumps({"type": "object", "properties": PROPERTIES, "required": ["code"]}),
    )

    def __init__(self) -> None:
        if refusal := sandbox_kind().refusal():
            raise UserError(f"--tools python: {refusal}")

    async def call(self, args: Mapping[str, Any], seconds: float) -> ToolResult:
        code = args.get("code")
        if not isinstance(code, str) or set(args) != {"code"}:
            return failure('arguments: the program is text, as {"code": "print(1)"}')
        return outcome_of(await run_beside(code, seconds))


async def run_beside(code: str, seconds: float) -> Ran:
    """What a program did, run beside the event loop in an empty world of its own. Raises Fault where
    the sandbox does not answer.
    """
    limits = Limits(seconds=seconds)
    work = run_in_thread(lambda: run_program(code, limits=limits), "tool python")
    if not await wait_for(work, seconds + GRACE):
        raise Fault("sandbox", f"it gave nothing in {seconds + GRACE:g} s")
    return work.result()


def outcome_of(ran: Ran) -> ToolResult:
    """What a program printed; of one that failed also how. Raises Fault where nothing was run."""
    if ran.status == "refused":
        raise Fault("sandbox", ran.stderr)
    if ran.status == "ok":
        return ToolResult(text=ran.stdout or SILENT)
    # the last line of a traceback says most, and a long result is cut at its end
    last = ran.stderr.strip().rpartition("\n")[2]
    outcome_text = failure(f"{ran.status}{f': {last}' if last else ''}").text
    return ToolResult(text=f"{outcome_text}\n{ran.stdout}".strip(), failed=True)
