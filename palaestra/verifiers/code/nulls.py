"""Candidates that solve nothing, run against every test: what they pass asks for nothing."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from palaestra.errors import Fault

VALUES = {
    "returns None": "None",
    "returns []": "[]",
    "returns {}": "{}",
    "returns an empty iterator": "iter(())",
    "returns 0": "0",
    "returns True": "True",
    "returns ''": "''",
    "returns NaN": "float('nan')",
    "returns object()": "object()",
    "returns its argument": "a[0] if a else None",
    # it also returns it: `f(a) == sorted(a)` compares nothing with nothing then
    "empties its argument": "([x.clear() for x in a if hasattr(x, 'clear')], a[0] if a else None)[1]",
    "reverses its argument": "([x.reverse() for x in a if hasattr(x, 'reverse')], a[0] if a else None)[1]",
}
EXPECTED = re.compile(r"\b[A-Z]\w*(?:Error|Exception|Iteration)\b|\bException\b")
PROGRAM = """def null(*a, **k): return {value}
class Null:
    def __init__(self, *a, **k): pass
    def __getattr__(self, name): return null
"""
ECHO = {
    "python": "import sys\nsys.stdout.write(sys.stdin.read())",
    "bash": "cat",
    "perl": "print <STDIN>;",
}


def null_candidates(tests: Sequence[Any], language: str) -> dict[str, str]:
    """Candidates by name: functions and classes of every name that a test takes, and a program that
    prints its input.
    """
    from palaestra.services.sandbox import Stdio
    from palaestra.services.sandbox.needs import script

    candidates = (
        {"prints its input": ECHO[language]} if any(isinstance(t, Stdio) for t in tests) else {}
    )
    names = sorted({n for t in tests if not isinstance(t, Stdio) for n in script(t).wanted})
    if names:
        made = "\n".join(
            f"{n} = {'Null' if n.lstrip('_')[:1].isupper() else 'null'}" for n in names
        )
        expected = dict.fromkeys(n for t in tests for n in EXPECTED.findall(repr(t)))
        raising = {f"raises {n}": f"(_ for _ in ()).throw({n}())" for n in expected}
        values = VALUES | raising
        candidates |= {name: PROGRAM.format(value=v) + made for name, v in values.items()}
    return candidates


def passed_by_nulls(tests: Sequence[Any], limits: Any, language: str) -> list[tuple[str, ...]]:
    """The candidates that pass each test."""
    from palaestra.services import sandbox

    if refusal := sandbox.sandbox_kind().refusal():
        raise Fault("sandbox", refusal)
    passed: list[list[str]] = [[] for _ in tests]
    for name, code in null_candidates(tests, language).items():
        if language == "python":
            all_passed = sandbox.check_python(code, tests, limits).passed
        else:
            all_passed = sandbox.check_program(language, code, tests, limits).passed
        for by, right in zip(passed, all_passed, strict=True):
            by += [name] if right else []
    return list(map(tuple, passed))
