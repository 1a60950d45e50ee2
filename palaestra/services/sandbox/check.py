"""Unit tests of model-written code, with a verdict that the candidate can neither read nor write.

Every test is a run of its own. What a program should print is compared in this process and never
enters the sandbox. Code that asserts runs in another process than the candidate, which can't see or
signal it; only data crosses (`inside/peer.py`).
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import replace

from palaestra.errors import UserError
from palaestra.services.sandbox import programs
from palaestra.services.sandbox.needs import script
from palaestra.services.sandbox.values import Kind, Limits, Status, Stdio, Test, Tested

BUDGET = 30.0  # seconds


def check_with(
    kind: Kind,
    code: str,
    tests: Sequence[Test],
    limits: Limits,
    language: str = "python",
    budget: float = BUDGET,
) -> Tested:
    """Runs the tests in order; those that the budget does not reach count as failed, with status
    "timeout".

    Raises UserError for a test that can't be run (`needs`), Fault where the language's interpreter
    is missing.
    """
    if language != "python":
        programs.interpreter_path(language)
        if any(not isinstance(t, Stdio) for t in tests):
            raise UserError(
                f"a program in {language} is tested by input and output only; give {{stdin, "
                f"stdout}}"
            )
    scripts = [t if isinstance(t, Stdio) else script(t) for t in tests]
    refusal = kind.refusal()
    if refusal:
        return Tested(passed=(False,) * len(tests), status="refused")
    passed: list[bool] = []
    status: Status = "ok"
    deadline = time.monotonic() + budget
    for test in scripts:
        left = deadline - time.monotonic()
        if left <= 0:
            passed += [False] * (len(tests) - len(passed))
            status = "timeout"
            break
        within = replace(limits, seconds=min(limits.seconds, left))
        if isinstance(test, Stdio):
            ok, outcome_status = check_output(kind, code, test, within, language)
        else:
            outcome_status = kind.check(code, test, within).status
            ok = outcome_status == "ok"
        passed.append(ok)
        if status in ("ok", "error") and outcome_status != "ok":
            status = outcome_status
    return Tested(passed=tuple(passed), status=status)


def check_output(
    kind: Kind, code: str, test: Stdio, limits: Limits, language: str
) -> tuple[bool, Status]:
    """Whether a program prints what it should, and how its run ended."""
    files = {}
    if language != "python":
        code, files = programs.launcher(language, code)
    ran = kind.run(code, test.stdin, files, limits)
    return ran.status == "ok" and lines(ran.stdout) == lines(test.stdout), ran.status


def lines(text: str) -> list[str]:
    """Without trailing blanks on a line and empty lines at the end."""
    return [x.rstrip() for x in text.rstrip().split("\n")]
