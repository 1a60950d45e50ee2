"""What a run says while it runs: a live display on a terminal, else a plain line every few seconds.

Standard output stays free.
"""

from __future__ import annotations

import math
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TextIO

from rich.console import Console
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Column, Table
from rich.text import Text

from palaestra.store.reading import number
from palaestra.terminal.streams import drawing

EVERY = 5.0  # seconds between the first plain lines
SPACING = 0.1  # of the time so far lies between two later ones: a log of hours stays short
LONGEST = 300.0  # seconds without a line: some services end what is silent for ten minutes
PACE_WINDOW = 20  # steps that the pace is taken from
BLOCKS = "▁▂▃▄▅▆▇█"
NARROW, WIDE = 8, 32  # characters of the bar, which takes a quarter of the line
ACCENT, CARE, ALARM = "#3a9ea5", "yellow", "red"
TRUNCATION_ALARM = 0.2  # share of truncated answers from which on it is shown in colour
GAP = Text("  ", no_wrap=True, overflow="ellipsis")


class Progress:
    """Shows steps as they finish; `step` counts finished ones. Use as a context manager.

    Reads of the metrics, each left out where absent: reward, reward_low, reward_high, length,
    truncated, errors, unjudged, is:guided, tokens_per_second, seconds; of steps that judge nothing the loss
    in place of the reward.
    """

    def __init__(
        self,
        total_steps: int,
        stream: TextIO | None = None,
        *,
        every: float = EVERY,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.total, self.stream = total_steps, sys.stderr if stream is None else stream
        self.every, self.clock = every, clock
        self.step, self.metrics = 0, dict[str, Any]()
        self.course: list[float] = []
        self.ends: deque[float] = deque(maxlen=PACE_WINDOW + 1)
        self.begin, self.spoken, self.shown_step = clock(), -math.inf, 0
        self.console = Console(file=drawing(self.stream))
        self.live: Live | None = None
        if is_live(self.console):
            self.live = Live(
                get_renderable=self._picture,
                console=self.console,
                refresh_per_second=2,
                redirect_stdout=False,
                # warnings appear above the display instead of inside it
                redirect_stderr=self.stream is sys.stderr,
            )

    def __enter__(self) -> Progress:
        if self.live is not None:
            self.live.start(refresh=True)
            self.console.show_cursor(True)  # a killed process could not bring it back
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def update(self, step: int, metrics: Mapping[str, Any]) -> None:
        """A step has finished."""
        self.step, self.metrics = step, dict(metrics)
        self.ends.append(self.clock())
        if (reached := number(metrics.get(self._judged_by()))) is not None:
            self.course.append(reached)
        if self.live is not None:
            self.live.refresh()
        elif self._is_due() or step >= self.total:
            self._say()

    def close(self) -> None:
        """Leaves the last state standing. May be called twice."""
        if self.live is not None:
            self.live.stop()
        elif self.shown_step < self.step:
            self._say()

    def _is_due(self) -> bool:
        wait = pause(self.spoken - self.begin, self.every)
        return self.ends[-1] - self.spoken >= wait

    def _say(self) -> None:
        self.spoken, self.shown_step = self.clock(), self.step
        pieces = (self._count(), *self._judged(), *self._behaviour(), *self._pace())
        print(GAP.join(pieces).plain, file=self.stream, flush=True)

    # ---- what is shown

    def left(self) -> float | None:
        """Seconds until the last step, at the recent pace; None before anything is known of it."""
        steps = len(self.ends) - 1
        if steps >= 1:
            pace = (self.ends[-1] - self.ends[0]) / steps
        elif (
            self.ends and (seconds := number(self.metrics.get("seconds"))) is not None and self.step
        ):
            pace = seconds / self.step
        else:
            return None
        return max(0.0, pace * (self.total - self.step) - (self.clock() - self.ends[-1]))

    def _count(self) -> Text:
        return piece("step", f"{self.step}/{self.total}")

    def _pace(self) -> list[Text]:
        speed, left = number(self.metrics.get("tokens_per_second")), self.left()
        pieces: list[Text] = []
        if self.step >= self.total:
            pieces.append(Text(f"{clock_time(self.clock() - self.begin)} in all"))
        elif left is not None:
            pieces.append(Text(f"{clock_time(left)} left"))
        return pieces + ([Text(f"{speed:,.0f} tokens/s")] if speed else [])

    def _judged_by(self) -> str:
        """The metric that says how well a step went: answers of the data that nobody judged have no
        reward.
        """
        return "reward" if "reward" in self.metrics else "loss"

    def _judged(self) -> list[Text]:
        """The reward with half the width of its interval, or the loss; nothing where
        there is none.
        """
        name = self._judged_by()
        reached, low, high = (
            number(self.metrics.get(key)) for key in (name, "reward_low", "reward_high")
        )
        if reached is None:
            return []
        if name == "loss":
            return [piece(name, f"{reached:.4f}", "bold")]
        spread = f" ± {(high - low) / 2:.2f}" if low is not None and high is not None else ""
        return [piece(name, f"{reached:.2f}{spread}", "bold")]

    def _behaviour(self) -> list[Text]:
        length, cut, errors, unjudged, guided = (
            number(self.metrics.get(n))
            for n in ("length", "truncated", "errors", "unjudged", "is:guided")
        )
        shares = (
            ("length", length, "{:.1f}", ""),
            ("truncated", cut, "{:.0%}", CARE if cut and cut > TRUNCATION_ALARM else ""),
            ("errors", errors, "{:.0%}", ALARM if errors else ""),
            ("unjudged", unjudged, "{:.0%}", ""),
            ("guided", guided, "{:.0%}", ""),
        )
        return [
            piece(label, shape.format(x), style)
            for label, x, shape, style in shares
            if x is not None
        ]

    def _picture(self) -> Table:
        """Two lines in three columns: how far, and how well. What does not fit on a line is cut at
        its end.
        """
        width, total = max(NARROW, min(WIDE, self.console.width // 4)), max(self.total, 1)
        bar = ProgressBar(
            total, self.step, width=width, complete_style=ACCENT, finished_style=ACCENT
        )
        # each block stands below the steps it is the mean of
        reached = max(1, width * self.step // total)
        course = Text(sparkline(self.course, reached), ACCENT)
        rewards = self._judged() if self.metrics else [Text("waiting for the first step", "dim")]
        grid = Table.grid(
            Column(no_wrap=True), Column(no_wrap=True), Column(), padding=(0, 2, 0, 0)
        )
        grid.add_row(self._count(), bar, GAP.join(self._pace()))
        grid.add_row(GAP.join(rewards), course, GAP.join(self._behaviour()))
        return grid


class Pulse:
    """Says a plain line now and then while something is under way that says nothing itself: after
    a few seconds, and then after twice as long each time. Use as a context manager.
    """

    def __init__(
        self,
        name: str,
        stream: TextIO | None = None,
        *,
        tell: Callable[[], str] = str,
        every: float = EVERY,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """
        Args:
            name: what is under way.
            stream: None = standard error.
            tell: what is known of it meanwhile; asked in another thread.
            every: seconds before the first line.
            clock: seconds.
        """
        self.name, self.tell, self.every, self.clock = name, tell, every, clock
        self.stream = sys.stderr if stream is None else stream
        self._begin, self._over = clock(), threading.Event()
        self._thread = threading.Thread(target=self._beat, name="palaestra pulse", daemon=True)

    def __enter__(self) -> Pulse:
        self._begin = self.clock()
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()

    def _beat(self) -> None:
        wait = self.every
        while not self._over.wait(wait):
            wait = max(self.every, min(LONGEST, 2 * wait))
            pieces = (self.name, f"{clock_time(self.clock() - self._begin)} so far", self.tell())
            print("  ".join(filter(None, pieces)), file=self.stream, flush=True)


def pause(elapsed: float, every: float) -> float:
    """Seconds from one plain line to the next: longer the longer the work has taken.

    Args:
        elapsed: seconds of the work before the first of them.
        every: the least number of seconds.
    """
    return max(every, min(LONGEST, SPACING * elapsed))


def is_live(console: Console) -> bool:
    """Whether what it writes to can redraw a line, whatever the settings of colours say."""
    return console.file.isatty() and console.is_terminal and not console.is_dumb_terminal


def piece(label: str, text: str, style: str = "") -> Text:
    return Text.assemble((f"{label} ", "dim"), (text, style))


def clock_time(seconds: float) -> str:
    """m:ss, or h:mm:ss."""
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"


def sparkline(values: Sequence[float], width: int) -> str:
    """The course of a number in one line of blocks, each the mean of its stretch; the lowest to the
    highest of them.
    """
    n = min(width, len(values))
    if not n:
        return ""
    means = [
        sum(part) / len(part)
        for i in range(n)
        if (part := values[i * len(values) // n : (i + 1) * len(values) // n])
    ]
    low, high = min(means), max(means)
    span = max(high - low, 1e-9)
    return "".join(BLOCKS[min(len(BLOCKS) - 1, int((m - low) / span * len(BLOCKS)))] for m in means)
