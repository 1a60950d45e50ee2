"""Code: by unit tests in the sandbox, and by its likeness to the migrated code (ReCode)."""

from __future__ import annotations

import ast
import io
import re
import tokenize
import warnings
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any, ClassVar

from palaestra.errors import Fault, UserError
from palaestra.types import stage
from palaestra.verifiers.base import (
    Judgement,
    failed_judgement,
    fences,
    guard_verifier,
    require_field,
    strip_thinking,
)
from palaestra.verifiers.code.nulls import passed_by_nulls
from palaestra.verifiers.text.formats import Tags
from palaestra.verifiers.text.similarity import edit_similarity

LANGUAGES = ("python", "py", "python3")
QUOTATION = re.compile(r"\'\'\'.*?\'\'\'|\"\"\".*?\"\"\"|'.*?'|\".*?\"", re.DOTALL)
FENCES = {"python": LANGUAGES, "bash": ("bash", "sh", "shell"), "perl": ("perl", "pl")}


@stage
class CodeTests:
    """1 if the reply's last code block passes every one of `tests`, run in the sandbox; `partial`
    pays the share passed.

    A test is a program that fails by an exception, "assert add(1, 2) == 3"; or {"function", "args",
    "expected"}; or {"stdin", "stdout"}, the only kind for a `language` other than Python ("bash",
    "perl"). A program sees of the reply what `entry_point` names, else the one name that it needs
    beside Python's own, the standard modules and what it or `setup` defines: a helper that the
    reply may define decides the test, so a program that needs more is a mistake of the data. So is
    a test that an empty reply passes: it asks nothing, or only Python's own functions, or expects
    no output. With `first`, the share is of the first so many tests: Critique-Coder's released
    reward (10, arXiv:2509.22824), unless all pass.
    """

    partial: bool = False
    first: int = 0
    seconds: float = 5.0
    memory_mb: int = 512
    language: str = "python"

    def __post_init__(self) -> None:
        if self.language not in FENCES:
            raise UserError(f"CodeTests: language {self.language!r} is none of {', '.join(FENCES)}")

    @guard_verifier
    def __call__(
        self,
        response: str,
        answer: Any,
        *,
        tests: str | Sequence[str | Mapping[str, Any]],
        entry_point: str | Sequence[str] = "",
        setup: str = "",
    ) -> Judgement:
        asked = tests_of(tests, entry_point, setup)
        blocks = code_blocks(strip_thinking(response), self.language)
        if not blocks:
            return failed_judgement("unparsable")
        passed, status = run_tests(
            blocks[-1],
            asked,
            seconds=self.seconds,
            memory_mb=self.memory_mb,
            language=self.language,
        )
        counted = passed[: self.first] if self.first and not all(passed) else passed
        share = sum(counted) / len(counted)
        parts = {"passed": sum(passed) / len(passed), "all": float(all(passed))}
        score = parts["all"] if not self.partial else share
        return Judgement(score=score, parts={**parts, "paper": share}, status=status)

    def null_passes(
        self,
        *,
        tests: str | Sequence[str | Mapping[str, Any]],
        entry_point: str | Sequence[str] = "",
        setup: str = "",
    ) -> list[tuple[str, tuple[str, ...]]]:
        """Each test as text, and the candidates that pass it without solving anything
        (`code.nulls`).
        """
        from palaestra.services import sandbox

        limits = sandbox.Limits(seconds=self.seconds, memory_mb=self.memory_mb)
        passes = passed_by_nulls(tests_of(tests, entry_point, setup), limits, self.language)
        given = [tests] if isinstance(tests, str) else tests
        return list(zip(map(str, given), passes, strict=True))


def code_blocks(text: str, language: str = "python") -> list[str]:
    """The blocks of code in a language; where none names it, those that name no language. The end
    of the reply ends a block.
    """
    named, bare = (
        [b for b in fences(text, of, cut=True) if b.strip()] for of in (FENCES[language], ("",))
    )
    return named or bare


def run_tests(
    code: str, tests: list[Any], *, seconds: float, memory_mb: int, language: str = "python"
) -> tuple[tuple[bool, ...], str]:
    """Which tests pass, and "ok", "timeout" or "failed". A sandbox that refuses is a Fault."""
    from palaestra.services import sandbox

    limits = sandbox.Limits(seconds=seconds, memory_mb=memory_mb)
    if language == "python":
        outcome = sandbox.check_python(code, tests, limits)
    else:
        outcome = sandbox.check_program(language, code, tests, limits)
    if outcome.status == "refused":
        raise Fault(
            "sandbox",
            "this machine cannot run code in isolation; `palaestra doctor` says what is missing",
        )
    for test, passed in zip(tests, outcome.passed, strict=True):
        if passed and isinstance(test, sandbox.Asserts) and is_vacuous(test, limits):
            raise UserError(
                f"CodeTests: the test {test.code[:60]!r} passes without any code; call what the "
                "reply defines, and name a function that is named like one of Python's as "
                "`entry_point`"
            )
    return outcome.passed, {"ok": "ok", "timeout": "timeout"}.get(
        outcome.status, "ok" if all(outcome.passed) else "failed"
    )


@lru_cache(maxsize=4096)
def is_vacuous(test: Any, limits: Any) -> bool:
    """Whether a test asks nothing of the code."""
    from palaestra.services import sandbox

    return all(sandbox.check_python("", [test], limits).passed)


def tests_of(tests: Any, entry_point: str | Sequence[str], setup: str) -> list[Any]:
    """The tests of a task as the sandbox knows them. Raises UserError where there are none."""
    given = [tests] if isinstance(tests, str) else tests
    if not given:
        raise UserError(
            "CodeTests: `tests` is empty; give at least one program that fails by an exception"
        )
    names = (entry_point,) if isinstance(entry_point, str) else entry_point
    return [test_of(t, tuple(filter(None, names)), setup) for t in given]


def test_of(given: Any, names: tuple[str, ...] = (), setup: str = "") -> Any:
    """A test of the data as the sandbox knows it."""
    from palaestra.services import sandbox

    match given:
        case str():
            return sandbox.Asserts(code=given, setup=setup, names=names)
        case {"stdin": str(stdin), "stdout": str(stdout), **more} if not more:
            if not stdout.strip():
                raise UserError(
                    f"CodeTests: test {str(given)[:60]!r} expects no output, which any silent "
                    "program gives"
                )
            return sandbox.Stdio(stdin=stdin, stdout=stdout)
        case {
            "function": str(function),
            "args": list(args) | tuple(args),
            "expected": expected,
            **more,
        } if not more:
            return sandbox.Calls(function=function, args=tuple(args), expected=expected)
        case _:
            raise UserError(
                f"CodeTests: test {str(given)[:60]!r} is no code, no {{function, args, expected}} "
                "with a name and a list, no "
                "{stdin, stdout} of texts"
            )


@stage
class ApiMigration:
    """ReCode (arXiv:2506.20495): format +-1, and for the first Python block 3.5 similarity - 1.5,
    or -2 if it does not parse.

    Similarity is 1 - Levenshtein / longer length, without comments and blank lines. `exact` pays 2
    or -1.5 (EM*). The score is (reward + 3) / 6, so a copy of the old code is worth much: see its
    baseline, or put it in a `Delta`. `released` finds comments as the released code does
    (`cut_at_quotes`): code without any then equals any other such.
    """

    exact: bool = False
    released: bool = False
    most_times: int = 4  # a prediction this many times as long as the target is not alike
    least: ClassVar[float] = -3.0

    @guard_verifier
    def __call__(self, response: str, answer: Any) -> Judgement:
        strip = cut_at_quotes if self.released else strip_comments
        target = strip(str(require_field(answer, "answer", str, self)))
        if target is None:
            raise UserError(
                f"ApiMigration: the answer {str(answer)[:40]!r} is no Python; give code that parses"
            )
        text = response if response.lstrip().startswith("<think>") else "<think>" + response
        form = Tags()(text, None).score
        blocks = fences(separate_fences(response), LANGUAGES)
        code = strip(blocks[0]) if blocks else None
        if code is None:
            likeness, worth = 0.0, -2.0
        else:
            long = len(code) > self.most_times * max(1, len(target))
            likeness = 0.0 if long else edit_similarity(code, target)
            likeness = float(code == target) if self.exact else likeness
            worth = 3.5 * likeness - 1.5
        paper = (1.0 if form else -1.0) + worth
        parts = {
            "similarity": likeness,
            "format": form,
            "parses": float(code is not None),
            "paper": paper,
        }
        return Judgement(
            score=(paper + 3) / 6, parts=parts, status="ok" if code is not None else "unparsable"
        )


def separate_fences(text: str) -> str:
    """Fences that stand directly beside a tag, on lines of their own."""
    return text.replace("<answer>```", "<answer>\n```").replace("```</answer>", "```\n</answer>")


def cut_at_quotes(code: str) -> str | None:
    """Code without what the released pattern takes for comments: quotes pair before comments are
    found, so that the apostrophe in one opens a string, and all up to the end of the line on which
    it closes is deleted. None = what is left is no Python.
    """
    masked = QUOTATION.sub(lambda m: "x" * len(m[0]), code)
    ends = [0, *(at for m in re.finditer(r"#[^\n]*", masked) for at in m.span()), len(code)]
    left = "".join(code[a:b] for a, b in zip(ends[::2], ends[1::2], strict=True))
    return (
        None
        if strip_comments(left) is None
        else "\n".join(line for line in left.splitlines() if line.strip()).strip()
    )


def strip_comments(code: str) -> str | None:
    """Code without comments and blank lines, by its tokens: what looks like a comment in a string
    stays. None = no Python.
    """
    try:
        with warnings.catch_warnings():  # Python's remarks on the style of what was written
            warnings.simplefilter("ignore")
            ast.parse(code)
        comments = [
            t
            for t in tokenize.generate_tokens(io.StringIO(code).readline)
            if t.type == tokenize.COMMENT
        ]
    except (SyntaxError, ValueError, tokenize.TokenError, MemoryError):
        return None
    lines = code.splitlines()
    for comment in comments:
        row, column = comment.start
        lines[row - 1] = lines[row - 1][:column]
    return "\n".join(line.rstrip() for line in lines if line.strip()).strip()
