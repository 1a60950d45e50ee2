"""Long work in parts that are kept: what was stopped goes on where it was, with nothing made twice.

A part is a JSON file in a folder that is named by the digest of all that the parts depend on, and
that goes when the whole is there.
"""

from __future__ import annotations

import hashlib
import json
import logging
import math
import shutil
import signal
import time
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path
from typing import Any, NoReturn

import palaestra
from palaestra.errors import Stopped
from palaestra.store.checkpoint import disk_errors, make_folder, write_atomic
from palaestra.terminal.progress import Headway

FOLDER = ".parts"
ADDRESS = 12  # characters of the digest


class Parts:
    """The parts of a long work by name, as plain data; a headway shows how many are there."""

    def __init__(
        self,
        headway: Headway,
        home: Path | None = None,
        conditions: Mapping[str, Any] | None = None,
        left: Callable[[], float] = lambda: math.inf,
    ) -> None:
        """
        Args:
            home: the folder of this work's parts; None = they are not kept.
            conditions: plain data that the parts depend on: the work, the machine, the code. Parts
                that were made under others are not used.
            left: seconds in which rounds may still be begun.
        """
        self.headway, self.home, self.folder, self.left = headway, home, None, left
        self._there: dict[str, dict[str, Any]] = {}
        if home is not None:
            text = json.dumps(conditions, sort_keys=True)
            self.folder = home / hashlib.sha256(text.encode()).hexdigest()[:ADDRESS]
            with disk_errors(f"reading {self.folder}"):
                self._there = {
                    p.stem: json.loads(p.read_text()) for p in self.folder.glob("*.json")
                }
        self.resumed = bool(self._there)

    def expect(self, total: int) -> None:
        """How many parts the whole has; says which of those that lie there are used."""
        made = self._there.values()
        done, seconds = sum(p["parts"] for p in made), sum(p["seconds"] for p in made)
        if self.home is not None and self.home.is_dir():
            others = [p for p in self.home.iterdir() if p.is_dir() and p != self.folder]
            if others:
                self.headway.note(
                    f"{others[0]} holds parts of another machine, version or work; they are not "
                    "used"
                )
        self.headway.expect(total, done, seconds / done if done else None)

    def keep(self, name: str, make: Callable[[], Any], parts: int = 1) -> Any:
        """What lies there under a name, else what `make` gives, which then lies there.

        `parts` are those of the whole that it stands for; `make` may advance the headway through
        them.
        """
        if name not in self._there:
            before, begin = self.headway.done, time.perf_counter()
            value = make()
            self.add(name, value, time.perf_counter() - begin, parts, self.headway.done - before)
        return self._there[name]["value"]

    def add(self, name: str, value: Any, seconds: float, parts: int = 1, counted: int = 0) -> None:
        """A part that took so many seconds; `counted`: what the headway knows of it already."""
        text = json.dumps({"value": value, "seconds": seconds, "parts": parts})
        # as it will be read, whether or not this process is stopped
        self._there[name] = json.loads(text)
        if self.folder is not None:
            write_atomic(make_folder(self.folder) / f"{name}.json", text)
        self.headway.advance(parts - counted, name)

    def find(self, names: Iterable[str]) -> list[Any]:
        """Those of some parts that lie there."""
        return [self._there[n]["value"] for n in names if n in self._there]

    def rounds(self, name: str, n: int, *, warm: bool = True) -> Rounds:
        """`n` rounds of a measurement, each a part. `warm`: the first of a process does not
        count.
        """
        return Rounds(self, name, n, warm or self.resumed)

    def remove(self) -> None:
        """The whole is there, and its parts go."""
        if self.folder is not None:
            shutil.rmtree(self.folder, ignore_errors=True)
            for folder in (self.folder.parent, self.folder.parent.parent):
                with suppress(OSError):  # other parts lie there
                    folder.rmdir()


class Rounds:
    """Iterates over the rounds that are still to be taken, after a round 0 that warms up, and keeps
    what they `put`.

    It ends earlier where less time is left than a round took, but not before two count.
    """

    def __init__(self, parts: Parts, name: str, n: int, warm: bool) -> None:
        self._parts, self._names, self._warm = parts, [f"{name}, {i + 1}" for i in range(n)], warm
        self._at, self._begin = 0, 0.0
        self.before = len(self.found)  # rounds that earlier processes took

    @property
    def found(self) -> list[Any]:
        """Of all rounds so far, in their order."""
        return self._parts.find(self._names)

    def __iter__(self) -> Iterator[int]:
        longest = 0.0
        todo = range(self.before + 1, len(self._names) + 1)
        for i in (0, *todo) if todo and self._warm else todo:
            if i > 2 and self._parts.left() < longest:
                return
            self._at, self._begin = i, time.perf_counter()
            yield i
            longest = max(longest, time.perf_counter() - self._begin)

    def put(self, value: Any) -> None:
        """What the round under way found, as plain data; of round 0 it is dropped."""
        if self._at:
            seconds = time.perf_counter() - self._begin
            self._parts.add(self._names[self._at - 1], value, seconds)


# ---- stopping


class Interrupt(KeyboardInterrupt):
    """A signal of `stop_signals`, at once. `signal` is its number."""

    def __init__(self, signal: int) -> None:
        super().__init__()
        self.signal = signal


def stop_signals() -> list[signal.Signals]:
    """What asks a program to end; without SIGHUP where it was told to outlive its terminal, as by
    nohup.
    """
    hangs_up = signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN
    return [signal.SIGTERM, signal.SIGINT, *([signal.SIGHUP] if hangs_up else [])]


@contextmanager
def stoppable(then: Callable[[], str]) -> Generator[None]:
    """Inside, SIGTERM and SIGHUP end the work as Ctrl-C does, at once; all leave it as `Stopped`,
    with what `then` says of how to go on.
    """
    before: dict[int, Any] = {}
    logging.getLogger("asyncio").addFilter(_is_news)
    try:
        with suppress(ValueError):  # not the main thread: whoever owns it handles signals
            for number in stop_signals():
                before[number] = signal.signal(number, _interrupt)
        yield
    except Interrupt as interrupt:
        raise Stopped(f"stopped; {then()}", interrupt.signal) from None
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _is_news(record: logging.LogRecord) -> bool:
    """Not the traceback of a task that an interrupt broke off."""
    return not (record.exc_info and isinstance(record.exc_info[1], Interrupt))


def go_on(command: str) -> str:
    """How work goes on whose finished parts are kept."""
    return f"what is finished is kept; go on with: {command}"


def _interrupt(number: int, frame: Any = None) -> NoReturn:
    raise Interrupt(number)


@cache
def package_sha256() -> str:
    """Of every Python file of the package."""
    return folder_sha256(Path(palaestra.__file__).parent)


def folder_sha256(folder: Path) -> str:
    """Of every Python file below a folder."""
    digests = [
        [str(p.relative_to(folder)), hashlib.sha256(p.read_bytes()).hexdigest()]
        for p in sorted(folder.rglob("*.py"))
    ]
    return hashlib.sha256(json.dumps(digests).encode()).hexdigest()
