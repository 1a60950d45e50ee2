"""Unit tests of model-written Python, with a verdict that the candidate can neither read nor write.

Every test is a run of its own. What a program should print is compared in this process and never enters the sandbox. Code
that asserts runs in another process than the candidate, which can't see or signal it; only data crosses (`inside/peer.py`).
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import replace

from palaestra.services.sandbox.values import Asserts, Calls, Kind, Limits, Ran, Status, Stdio, Test, Tested

BUDGET = 30.0  # seconds


def check_with(kind: Kind, code: str, tests: Sequence[Test], limits: Limits, budget: float = BUDGET) -> Tested:
    """Runs the tests in order; those that the budget does not reach count as failed, with status "timeout"."""
    refusal = kind.refusal()
    if refusal:
        return Tested(passed=(False,) * len(tests), status="refused")
    passed: list[bool] = []
    status: Status = "ok"
    deadline = time.monotonic() + budget
    for test in tests:
        left = deadline - time.monotonic()
        if left <= 0:
            passed += [False] * (len(tests) - len(passed))
            status = "timeout"
            break
        ok, found = one(kind, code, test, replace(limits, seconds=min(limits.seconds, left)))
        passed.append(ok)
        if status in ("ok", "error") and found != "ok":
            status = found
    return Tested(passed=tuple(passed), status=status)


def one(kind: Kind, code: str, test: Test, limits: Limits) -> tuple[bool, Status]:
    """Whether the candidate passes, and how its run ended ("error" also where an assertion failed)."""
    if isinstance(test, Stdio):
        ran = kind.run(code, test.stdin, {}, limits)
        return ran.status == "ok" and lines(ran.stdout) == lines(test.stdout), ran.status
    ran: Ran = kind.check(code, *script(test), limits=limits)
    return ran.status == "ok", ran.status


def script(test: Calls | Asserts) -> tuple[str, str]:
    """The test as code for the tester's process, and the name it needs from the candidate even if it is a builtin's."""
    if isinstance(test, Asserts):
        return test.code, ""
    arguments = ", ".join(map(repr, test.args))
    call = f"import peer\nassert peer.same({test.function}({arguments}), {test.expected!r})"
    return call, test.function.partition("(")[0].partition(".")[0]


def lines(text: str) -> list[str]:
    """Without trailing blanks on a line and empty lines at the end."""
    return [x.rstrip() for x in text.rstrip().split("\n")]
