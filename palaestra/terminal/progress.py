"""How much of a long work is done, and how long the rest takes: a bar on a terminal, else a plain
line every few seconds.

Standard output stays free.
"""

from __future__ import annotations

import math
import sys
import time
from collections.abc import Callable
from typing import TextIO

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    ProgressColumn,
    Task,
    TextColumn,
    TimeElapsedColumn,
)
from rich.text import Text

from palaestra.terminal.display import ACCENT, EVERY, clock_time, is_live, pause
from palaestra.terminal.streams import drawing

QUIET = 6  # plain lines that are left out where nothing moves


class Headway:
    """Counts parts as they finish. Use as a context manager; `expect` says how many there are."""

    def __init__(
        self,
        name: str,
        say: Callable[[str], None] | None = None,
        *,
        stream: TextIO | None = None,
        every: float = EVERY,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """
        Args:
            name: what is done: "bench step".
            say: takes the plain lines; None = they go to `stream`, which has the bar instead where
                it is a terminal.
            stream: None = standard error.
            every: seconds between two plain lines.
            clock: seconds.
        """
        self.name, self.every, self.clock = name, every, clock
        out: TextIO = sys.stderr if stream is None else stream
        self._say = say or (lambda text: print(text, file=out, flush=True))
        self.total = self.done = 0
        self.under_way = 0.0  # of the parts that have begun, in parts
        self._before = 0.0  # parts that this process did not make
        self._pace: float | None = None  # seconds a part, as earlier processes know it
        self._begin = self._end = clock()
        self._spoken, self._shown = -math.inf, 0
        console = Console(file=drawing(out))
        self._bar: Progress | None = None
        if say is None and is_live(console):
            self._bar = self._make_bar(console)

    def __enter__(self) -> Headway:
        return self

    def __exit__(self, *_: object) -> None:
        """Leaves the last state standing."""
        if self._bar is not None:
            self._bar.stop()
        elif self._shown < self.done:
            self._tell()

    def expect(
        self, total: int, done: int = 0, pace: float | None = None, under_way: float = 0.0
    ) -> None:
        """Begins. Says nothing where all is done.

        Args:
            total: parts of the whole work.
            done: parts that are there already.
            pace: seconds a part, from those.
            under_way: what is there of the parts that have begun, in parts.
        """
        self.total, self.done, self._pace, self.under_way = total, done, pace, under_way
        self._before = done + under_way
        self._begin = self._end = self.clock()
        self._shown = done
        if done >= total:
            return
        if self._bar is not None:
            self._bar.add_task(self.name, total=total, completed=done, label="")
            self._bar.start()
            self._bar.console.show_cursor(True)  # a killed process could not bring it back
        else:
            self._tell(f"{done} there already" if done else "")

    def advance(self, parts: int = 1, label: str = "", under_way: float = 0.0) -> None:
        """Parts have finished, or those under way have come further; `label` names them. Where
        neither is so, it is no news, and a plain line comes after a longer time.
        """
        every = self.every
        if parts or under_way != self.under_way:
            self.done, self.under_way, self._end = self.done + parts, under_way, self.clock()
        elif label and self.done < self.total:
            every *= QUIET
        else:
            return
        if self._bar is not None:
            for task in self._bar.tasks:
                label = label or task.fields["label"]
                completed = self.done + under_way
                self._bar.update(task.id, completed=completed, label=label, refresh=True)
        elif self._is_due(every) or self.done >= self.total:
            self._tell(label)

    def _is_due(self, every: float) -> bool:
        return self.clock() - self._spoken >= pause(self._spoken - self._begin, every)

    def note(self, text: str) -> None:
        """A line of its own."""
        if self._bar is not None:
            self._bar.console.print(Text(text), soft_wrap=True)
        else:
            self._say(text)

    def left(self) -> float | None:
        """Seconds until the last part, at the pace of those that are done; None before there are
        any.
        """
        there = self.done + self.under_way
        here = there - self._before
        pace = (self._end - self._begin) / here if here > 0 else self._pace
        if pace is None:
            return None
        return max(0.0, pace * (self.total - there) - (self.clock() - self._end))

    def _tell(self, label: str = "") -> None:
        self._spoken, self._shown, left = self.clock(), self.done, self.left()
        spent = self._spoken - self._begin
        pieces = [self.name, f"{self.done}/{self.total}"]
        if self.under_way:
            pieces.append(f"{(self.done + self.under_way) / self.total:.0%}")
        if self.done >= self.total:
            pieces.append(f"{clock_time(spent)} in all")
        else:
            pieces += [f"{clock_time(spent)} so far"] if spent >= 1 else []
            pieces += [] if left is None else [f"{clock_time(left)} left"]
        self._say("  ".join([*pieces, label]).rstrip())

    def _make_bar(self, console: Console) -> Progress:
        return Progress(
            TextColumn("{task.description}", markup=False),
            BarColumn(complete_style=ACCENT, finished_style=ACCENT),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
            LeftColumn(self),
            TextColumn("{task.fields[label]}", style="dim", markup=False),
            console=console,
            refresh_per_second=2,
            redirect_stdout=False,
            # warnings appear above the bar instead of inside it
            redirect_stderr=console.file is drawing(sys.stderr),
        )


class LeftColumn(ProgressColumn):
    """The time left of a headway."""

    def __init__(self, headway: Headway) -> None:
        self.headway = headway
        super().__init__()

    def render(self, task: Task) -> Text:
        left = None if self.headway.done >= self.headway.total else self.headway.left()
        return Text("" if left is None else f"{clock_time(left)} left")
