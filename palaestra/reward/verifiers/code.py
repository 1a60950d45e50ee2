"""Code: by unit tests in the sandbox, and by its likeness to the migrated code (ReCode)."""

from __future__ import annotations

import ast
import io
import tokenize
import warnings
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any, ClassVar

from palaestra.reward.verifiers.base import Judgement, failed, fences, guarded, needed, reply
from palaestra.reward.verifiers.formats import Tags
from palaestra.reward.verifiers.similarity import edit_similarity
from palaestra.types import Fault, UserError, stage

LANGUAGES = ("python", "py", "python3")


@stage
class CodeTests:
    """1 if the reply's last Python block passes every one of `tests`, run in the sandbox; `partial` pays the share passed.

    A test is a program that fails by an exception, "assert add(1, 2) == 3"; or {"function", "args", "expected"}; or {"stdin",
    "stdout"}. A program that an empty reply passes too is a mistake of the data: it calls nothing, or a function of Python's
    own, which in a program is never the candidate's. With `first`, the share is of the first so many tests: Critique-Coder's
    released reward (10, arXiv:2509.22824), unless all pass.
    """

    partial: bool = False
    first: int = 0
    seconds: float = 5.0
    memory_mb: int = 512

    @guarded
    def __call__(self, response: str, answer: Any, *, tests: str | Sequence[str | Mapping[str, Any]]) -> Judgement:
        programs = [tests] if isinstance(tests, str) else list(needed(tests, "tests", (list, tuple), self))
        if not programs:
            raise UserError("CodeTests: `tests` is empty; give at least one program that fails by an exception")
        blocks = [b for b in fences(reply(response), LANGUAGES) if b.strip()]
        if not blocks:
            return failed("unparsable")
        passed, status = tested(blocks[-1], programs, seconds=self.seconds, memory_mb=self.memory_mb)
        counted = passed[: self.first] if self.first and not all(passed) else passed
        share = sum(counted) / len(counted)
        parts = {"passed": sum(passed) / len(passed), "all": float(all(passed))}
        score = parts["all"] if not self.partial else share
        return Judgement(score=score, parts={**parts, "paper": share}, status=status)


def tested(code: str, tests: list[Any], *, seconds: float, memory_mb: int) -> tuple[tuple[bool, ...], str]:
    """Which tests pass, and "ok", "timeout" or "failed". A sandbox that refuses is a Fault."""
    from palaestra.services import sandbox

    limits = sandbox.Limits(seconds=seconds, memory_mb=memory_mb)
    found = sandbox.check_python(code, [test_of(sandbox, t) for t in tests], limits)
    if found.status == "refused":
        raise Fault("sandbox", "this machine cannot run code in isolation; `palaestra doctor` says what is missing")
    for test, passed in zip(tests, found.passed, strict=True):
        if passed and isinstance(test, str) and vacuous(test, limits):
            raise UserError(
                f"CodeTests: the test {test[:60]!r} passes without any code; call what the reply defines, and a function "
                "named like one of Python's as {function, args, expected}"
            )
    return found.passed, {"ok": "ok", "timeout": "timeout"}.get(found.status, "ok" if all(found.passed) else "failed")


@lru_cache(maxsize=4096)
def vacuous(test: str, limits: Any) -> bool:
    """Whether a test asks nothing of the code."""
    from palaestra.services import sandbox

    return all(sandbox.check_python("", [sandbox.Asserts(code=test)], limits).passed)


def test_of(sandbox: Any, given: Any) -> Any:
    """A test of the data as the sandbox knows it."""
    if isinstance(given, str):
        return sandbox.Asserts(code=given)
    kinds = ({"stdin", "stdout"}, sandbox.Stdio), ({"function", "args", "expected"}, sandbox.Calls)
    made = next((kind for names, kind in kinds if isinstance(given, dict) and set(given) == names), None)
    if made is None:
        raise UserError(
            f"CodeTests: test {str(given)[:60]!r} is no code, no {{function, args, expected}}, no {{stdin, stdout}}"
        )
    return made(**{k: tuple(v) if k == "args" else v for k, v in given.items()})


@stage
class ApiMigration:
    """ReCode (arXiv:2506.20495): format +-1, and for the first Python block 3.5 similarity - 1.5, or -2 if it does not parse.

    Similarity is 1 - Levenshtein / longer length, without comments and blank lines. `exact` pays 2 or -1.5 (EM*).
    The score is (reward + 3) / 6, so a copy of the old code is worth much: see its baseline, or put it in a `Delta`.
    """

    exact: bool = False
    most_times: int = 4  # a prediction this many times as long as the target is not alike
    least: ClassVar[float] = -3.0

    @guarded
    def __call__(self, response: str, answer: Any) -> Judgement:
        target = stripped(str(needed(answer, "answer", str, self)))
        if target is None:
            raise UserError(f"ApiMigration: the answer {str(answer)[:40]!r} is no Python; give code that parses")
        text = response if response.lstrip().startswith("<think>") else "<think>" + response
        form = Tags()(text, None).score
        blocks = fences(unglued(response), LANGUAGES)
        code = stripped(blocks[0]) if blocks else None
        if code is None:
            likeness, worth = 0.0, -2.0
        else:
            long = len(code) > self.most_times * max(1, len(target))
            likeness = 0.0 if long else edit_similarity(code, target)
            likeness = float(code == target) if self.exact else likeness
            worth = 3.5 * likeness - 1.5
        paper = (1.0 if form else -1.0) + worth
        parts = {"similarity": likeness, "format": form, "parses": float(code is not None), "paper": paper}
        return Judgement(score=(paper + 3) / 6, parts=parts, status="ok" if code is not None else "unparsable")


def unglued(text: str) -> str:
    """Fences that stand directly beside a tag, on lines of their own."""
    return text.replace("<answer>```", "<answer>\n```").replace("```</answer>", "```\n</answer>")


def stripped(code: str) -> str | None:
    """Code without comments and blank lines, by its tokens: what looks like a comment in a string stays. None = no Python."""
    try:
        with warnings.catch_warnings():  # Python's remarks on the style of what was written
            warnings.simplefilter("ignore")
            ast.parse(code)
        found = [t for t in tokenize.generate_tokens(io.StringIO(code).readline) if t.type == tokenize.COMMENT]
    except (SyntaxError, ValueError, tokenize.TokenError, MemoryError):
        return None
    lines = code.splitlines()
    for comment in found:
        row, column = comment.start
        lines[row - 1] = lines[row - 1][:column]
    return "\n".join(line.rstrip() for line in lines if line.strip()).strip()
