"""Model-written code, run where it can do no harm.

    run("print(input())", stdin="3")            -> Ran(status="ok", stdout="3\\n", ...)
    with session() as s: s.run("x = 1"); s.run("x + 1")
    check_python(code, [Asserts(code="assert add(1, 2) == 3")])

Linux with bubblewrap (Alexander Larsson and others, github.com/containers/bubblewrap); elsewhere
every call is refused. Calls block; use them from threads (`asyncio.to_thread`) to run several at
once.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache

from palaestra.services.sandbox import bubblewrap
from palaestra.services.sandbox.check import check_with
from palaestra.services.sandbox.values import (
    Asserts,
    Calls,
    Files,
    Kind,
    Limits,
    Ran,
    Session,
    Stdio,
    Test,
    Tested,
)
from palaestra.services.sandbox.worker import LocalSandbox

__all__ = [
    "Asserts",
    "Calls",
    "Kind",
    "Limits",
    "Ran",
    "Session",
    "Stdio",
    "Test",
    "Tested",
    "check_program",
    "check_python",
    "open_session",
    "run_program",
    "sandbox_kind",
]  # fmt: skip


@cache
def sandbox_kind() -> Kind:
    """The sandbox of this machine: bubblewrap, or a plain subprocess where that can't run and the
    user insists.
    """
    guarded = LocalSandbox()
    if bubblewrap.wants_unsafe() and guarded.refusal():
        bubblewrap.warn_unsafe()
        return LocalSandbox(guarded=False)
    return guarded


def run_program(
    code: str,
    stdin: str = "",
    files: Files | None = None,
    limits: Limits = Limits(),
    fresh: bool = False,
) -> Ran:
    """Runs a Python program in its own empty world. `fresh` starts a whole new sandbox for it
    (cold).
    """
    refusal = sandbox_kind().refusal()
    return (
        Ran(status="refused", stderr=refusal)
        if refusal
        else sandbox_kind().run(code, stdin, files or {}, limits, fresh)
    )


def open_session(files: Files | None = None, limits: Limits = Limits()) -> Session:
    """A read-eval-print loop. Where the sandbox can't run, every cell is refused."""
    refusal = sandbox_kind().refusal()
    return Refused(refusal) if refusal else sandbox_kind().session(files or {}, limits)


def check_python(code: str, tests: Sequence[Test], limits: Limits = Limits()) -> Tested:
    """Runs tests against a candidate in Python, in this machine's sandbox.

    Args:
        code: the candidate, untrusted.
        tests: what it must pass, in order.
        limits: of time (seconds), memory (MB) and output (bytes).

    Returns:
        Which tests passed, and what became of the others.
    """
    return check_with(sandbox_kind(), code, tests, limits)


def check_program(
    language: str, code: str, tests: Sequence[Stdio], limits: Limits = Limits()
) -> Tested:
    """Which tests a program passes that is written in a language of
    `palaestra.services.sandbox.programs`.
    """
    return check_with(sandbox_kind(), code, tests, limits, language)


class Refused:
    """The session of a machine that can't isolate code."""

    def __init__(self, reason: str):
        self.reason = reason

    def run(self, code: str, limits: Limits | None = None) -> Ran:
        return Ran(status="refused", stderr=self.reason)

    def close(self) -> None:
        """Nothing to end."""

    def __enter__(self) -> Refused:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
