"""How a run feeds trackers without waiting for any.

Each works in a thread of its own behind a bounded queue. One that raises, falls behind or does not
answer is left out with one line; the run, its files and its exit status are those of a run without.
"""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from operator import methodcaller
from pathlib import Path
from types import TracebackType
from typing import Any

from palaestra.trackers.base import Tracker, describe_run, numbers_of

ROOM = 4096  # calls that may wait for one tracker; a step makes two
SECONDS = 30.0  # that one call may take, and the end of a run
LONGEST = 300  # characters shown of what a tracker said when it failed
THREAD = "palaestra tracker"


def is_stuck() -> bool:
    """Whether a tracker of a run that is over still has not answered."""
    return any(thread.name == THREAD for thread in threading.enumerate())


class Lane:
    """A tracker with its queue and its thread, in which it is also made.

    The process does not wait for the thread when it ends. `drop` is told once, with the reason,
    when the tracker is left out.
    """

    def __init__(self, make: Callable[[], Tracker], seconds: float, drop: Callable[[str], None]):
        self.make, self.seconds, self.open = make, seconds, True
        self._drop, self._lock = drop, threading.Lock()
        self._calls: queue.Queue[Callable[[Tracker], Any] | None] = queue.Queue(ROOM)
        self._begun = 0.0  # when what is under way began; 0 = nothing is
        self._thread = threading.Thread(target=self._work, name=THREAD, daemon=True)
        self._thread.start()

    def put(self, call: Callable[[Tracker], Any] | None) -> None:
        """Hands over a call, or None as the last one. Never waits."""
        begun = self._begun
        if begun and time.monotonic() - begun > self.seconds:
            self.leave(f"it has not answered for {self.seconds:g} seconds")
        if self.open:
            try:
                self._calls.put_nowait(call)
            except queue.Full:
                self.leave(f"it is {ROOM} calls behind")

    def wait(self, until: float) -> None:
        """Until the tracker has done all it was given, or the monotonic clock shows `until`."""
        if self.open:
            self._thread.join(max(0.0, until - time.monotonic()))
        if self._thread.is_alive():
            self.leave(f"it has not finished after {self.seconds:g} seconds")

    def leave(self, why: str) -> None:
        """Gives the tracker nothing more."""
        with self._lock:
            was, self.open = self.open, False
        if was:
            self._drop(why)

    def _work(self) -> None:
        try:
            self._begun = time.monotonic()
            tracker = self.make()
            self._begun = 0.0
            while (call := self._calls.get()) is not None and self.open:
                self._begun = time.monotonic()
                call(tracker)
                self._begun = 0.0
        except BaseException as error:  # a library may end its thread with SystemExit
            self.leave(f"{type(error).__name__}: {error}".splitlines()[0][:LONGEST])


class Trackers:
    """The trackers of a run by name, and of the parts of a pipeline one after another.

    `make` maps names to what makes a tracker; `say` is told of each one that is left out. As a
    context manager it lets the trackers of a run that does not end finish too. Without trackers
    every method does nothing.
    """

    def __init__(
        self,
        make: Mapping[str, Callable[[], Tracker]] | None = None,
        say: Callable[[str], None] = print,
        seconds: float = SECONDS,
    ):
        self.make, self.say, self.seconds = dict(make or {}), say, seconds
        self.lanes: dict[str, Lane] = {}

    def start(self, folder: Path, step: int = 0) -> None:
        """A run begins in its folder, or goes on after `step` steps; the one before it finishes."""
        self.finish()
        for name, make in [*self.make.items()]:
            self.lanes[name] = Lane(make, self.seconds, partial(self._drop, name, folder))
            self.lanes[name].put(methodcaller("start", describe_run(folder, step)))

    def log(self, record: Mapping[str, Any]) -> None:
        """A line of metrics.jsonl."""
        for lane in self.lanes.values():
            lane.put(methodcaller("log", record["step"], numbers_of(record)))

    def episodes(self, step: int, file: Path) -> None:
        """A rollout file that is complete."""
        for lane in self.lanes.values():
            lane.put(methodcaller("episodes", step, file))

    def finish(self, summary: Mapping[str, Any] | None = None, files: Sequence[Path] = ()) -> None:
        """The run has ended, or without a summary was stopped. Waits for all trackers together."""
        until, lanes = time.monotonic() + self.seconds, [*self.lanes.values()]
        for lane in lanes:
            lane.put(methodcaller("finish", dict(summary or {}), tuple(files)))
            lane.put(None)
        for lane in lanes:
            lane.wait(until)
        self.lanes = {}

    def __enter__(self) -> Trackers:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.finish()

    def _drop(self, name: str, folder: Path, why: str) -> None:
        self.make.pop(name, None)
        self.say(
            f"note: the tracker {name} is left out from here on: {why}; the run goes on, and "
            f"palaestra track {folder} --to {name} sends all of it later"
        )
