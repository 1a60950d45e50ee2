"""The nouns of the sandbox, and the interface that every kind of it has."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any, Literal, Protocol, TypeAlias

from palaestra.errors import UserError
from palaestra.types import value_class

Status: TypeAlias = Literal["ok", "error", "timeout", "memory", "output", "refused"]
Files: TypeAlias = Mapping[str, "str | bytes"]


@value_class
class Limits:
    """What a run may use. Memory is that of all its processes together, each of which may also
    address no more.
    """

    seconds: float = 5.0  # of the wall clock, per run, cell or test
    memory_mb: int = 512
    output_bytes: int = 1_000_000  # standard output and error together
    file_mb: int = 64  # of the whole private /tmp
    processes: int = 32

    def __post_init__(self) -> None:
        for name, least in (
            ("seconds", 0.0),
            ("memory_mb", 63),
            ("output_bytes", 0),
            ("file_mb", 0),
            ("processes", 0),
        ):
            given = getattr(self, name)
            if not least < given < float("inf"):
                raise UserError(f"Limits.{name} is {given}; it must be a number over {least:g}")

    def json(self) -> dict[str, Any]:
        return asdict(self)


@value_class
class Ran:
    """What a run did. `refused`: nothing was run, and stderr says why and how to mend it."""

    status: Status
    stdout: str = ""
    stderr: str = ""
    seconds: float = 0.0


@value_class
class Tested:
    """Which tests a candidate passed; `status` is that of the first test that did not end by
    itself, else of the worst.
    """

    passed: tuple[bool, ...]
    status: Status


@value_class
class Stdio:
    """A test by input and output: the candidate is a program. Lines are compared without trailing
    blanks.
    """

    stdin: str
    stdout: str


@value_class
class Calls:
    """A test by a call: the candidate defines `function`. Arguments and result are data (numbers,
    text, containers).

    Lists and tuples compare equal, as in JSON; integers exactly, floats to a relative 1e-9.
    """

    function: str
    args: tuple[Any, ...] = ()
    expected: Any = None


@value_class
class Asserts:
    """A test by code, e.g. `assert add(1, 2) == 3`: passes if it runs to its end.

    Of the candidate it sees `names`, else the one name that it needs beside Python's own and those
    that it or `setup`, code run before it, defines. A standard module's name is that module,
    imported or not, unless it is called as a function. A test that needs more is the user's
    mistake: who defines a helper decides the test.
    """

    code: str
    setup: str = ""
    names: tuple[str, ...] = ()


Test: TypeAlias = Stdio | Calls | Asserts


@value_class
class CheckScript:
    """A test as the sandbox runs it beside a candidate: code, the names that are the candidate's,
    and modules that it has.

    `given` is code that the candidate has as well, the definitions of the classes `records`.
    """

    code: str
    wanted: tuple[str, ...] = ()
    modules: tuple[str, ...] = ()
    given: str = ""
    records: tuple[str, ...] = ()


class Session(Protocol):
    """A read-eval-print loop: names live from cell to cell. A cell that breaks a limit ends them;
    the next starts empty.
    """

    def run(self, code: str, limits: Limits | None = None) -> Ran: ...
    def close(self) -> None: ...


class Kind(Protocol):
    """A way to run code in isolation. Wasm or a remote service has the same methods."""

    @property
    def name(self) -> str: ...

    def refusal(self) -> str:
        """Why it can't run here and how to mend it; "" = it can."""
        ...

    def run(
        self, code: str, stdin: str, files: Files, limits: Limits, fresh: bool = False
    ) -> Ran: ...
    def check(self, code: str, test: CheckScript, limits: Limits) -> Ran: ...
    def session(self, files: Files, limits: Limits) -> Session: ...
    def close(self) -> None:
        """Ends idle workers."""
        ...
