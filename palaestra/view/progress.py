"""What a run says while it runs: a live display on a terminal, else a plain line every few seconds.

Standard output stays free.
"""

from __future__ import annotations

import math
import sys
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TextIO

from palaestra.view.drawing import number

if TYPE_CHECKING:
    from rich.console import RenderableType
    from rich.live import Live
    from rich.text import Text

EVERY = 5.0  # seconds between plain lines
RECENT = 20  # steps that the pace is taken from
BLOCKS = "▁▂▃▄▅▆▇█"
NARROW, WIDE, GAP = 8, 32, 2  # characters of the bar, and between columns
ACCENT, CARE, ALARM = "#3a9ea5", "yellow", "red"
CROWDED = 0.2  # share of truncated answers from which on it is shown in colour

Piece = tuple[str, str, str]  # label, text, style


class Progress:
    """Shows steps as they finish; `step` counts finished ones. Use as a context manager, or call `close` at the end.

    Reads of the metrics, each left out where absent: reward, reward_low, reward_high, length, truncated, errors,
    tokens_per_second, seconds; of steps that sample nothing the loss in place of the reward and what was sampled.
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
        self.ends: deque[float] = deque(maxlen=RECENT + 1)
        self.begin, self.spoken, self.shown = clock(), -math.inf, 0
        self.terminal = self.stream.isatty()
        self.live: Live | None = None
        self.closed = False

    def __enter__(self) -> Progress:
        self._open()
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def update(self, step: int, metrics: Mapping[str, Any]) -> None:
        """A step has finished."""
        self.step, self.metrics = step, dict(metrics)
        self.ends.append(self.clock())
        if (reached := number(metrics.get(self._judged_by()))) is not None:
            self.course.append(reached)
        self._open()
        if self.live is not None:
            self.live.refresh()
        elif self.ends[-1] - self.spoken >= self.every or step >= self.total:
            self._say()

    def close(self) -> None:
        """Leaves the last state standing. May be called twice."""
        self.closed = True
        if self.live is not None:
            self.live.stop()
            self.live = None
        elif not self.terminal and self.shown < self.step:
            self._say()

    def _open(self) -> None:
        if not self.terminal or self.live is not None or self.closed:
            return
        from rich.console import Console
        from rich.live import Live

        console = Console(file=self.stream)
        if not console.is_terminal or console.is_dumb_terminal:
            self.terminal = False
            return
        own = self.stream is sys.stderr  # then warnings from elsewhere appear above the display instead of inside it
        self.live = Live(
            get_renderable=self._picture,
            console=console,
            refresh_per_second=2,
            redirect_stdout=False,
            redirect_stderr=own,
        )
        self.live.start(refresh=True)
        console.show_cursor(True)  # a killed process could not bring it back

    def _say(self) -> None:
        self.spoken, self.shown = self.clock(), self.step
        reward = [(self._judged_by(), said, "")] if (said := self._reached()) else []
        pieces = [("step", f"{self.step}/{self.total}", ""), *reward, *self._behaviour(), *self._pace()]
        print("  ".join(f"{label} {text}".strip() for label, text, _ in pieces), file=self.stream, flush=True)

    # ---- what is shown

    def left(self) -> float | None:
        """Seconds until the last step, at the recent pace; None before anything is known of it."""
        steps = len(self.ends) - 1
        if steps >= 1:
            pace = (self.ends[-1] - self.ends[0]) / steps
        elif self.ends and (seconds := number(self.metrics.get("seconds"))) is not None and self.step:
            pace = seconds / self.step
        else:
            return None
        return max(0.0, pace * (self.total - self.step) - (self.clock() - self.ends[-1]))

    def _pace(self) -> list[Piece]:
        speed, left = number(self.metrics.get("tokens_per_second")), self.left()
        pieces: list[Piece] = []
        if self.step >= self.total:
            pieces.append(("", f"{clock_time(self.clock() - self.begin)} in all", ""))
        elif left is not None:
            pieces.append(("", f"{clock_time(left)} left", ""))
        return pieces + ([("", f"{speed:,.0f} tokens/s", "")] if speed else [])

    def _judged_by(self) -> str:
        """The metric that says how well a step went: answers of the data all have the reward that is given with them."""
        return "loss" if number(self.metrics.get("tokens_per_second")) == 0 else "reward"

    def _reached(self) -> str:
        if self._judged_by() == "loss":
            loss = number(self.metrics.get("loss"))
            return "" if loss is None else f"{loss:.4f}"
        reward, low, high = (number(self.metrics.get(name)) for name in ("reward", "reward_low", "reward_high"))
        if reward is None:
            return ""
        return f"{reward:.2f}" + (f" ± {(high - low) / 2:.2f}" if low is not None and high is not None else "")

    def _behaviour(self) -> list[Piece]:
        length, cut, errors = (number(self.metrics.get(name)) for name in ("length", "truncated", "errors"))
        if self._judged_by() == "loss":
            length = cut = None
        found = (
            ("length", length, "{:.1f}", ""),
            ("truncated", cut, "{:.0%}", CARE if cut and cut > CROWDED else ""),
            ("errors", errors, "{:.0%}", ALARM if errors else ""),
        )
        return [(label, shape.format(x), style) for label, x, shape, style in found if x is not None]

    def _picture(self) -> RenderableType:
        """Two lines in three columns: how far, and how well."""
        from rich.progress_bar import ProgressBar
        from rich.table import Table
        from rich.text import Text

        width = self.live.console.width if self.live else 80
        step = Text.assemble(("step ", "dim"), f"{self.step}/{self.total}")
        reward = (
            Text.assemble((f"{self._judged_by()} ", "dim"), (self._reached(), "bold"))
            if self.metrics
            else Text("waiting for the first step", "dim")
        )
        room = width - max(len(step), len(reward)) - 2 * GAP - 1
        pace, behaviour = (fitted(pieces, room - NARROW) for pieces in (self._pace(), self._behaviour()))
        bar = max(NARROW, min(WIDE, room - max(len(pace), len(behaviour))))
        grid = Table.grid(padding=(0, GAP, 0, 0))
        done = ProgressBar(
            total=max(self.total, 1), completed=self.step, width=bar, complete_style=ACCENT, finished_style=ACCENT
        )
        grid.add_row(step, done, pace)
        reached = max(1, bar * self.step // max(self.total, 1))  # each block stands below the steps it is the mean of
        grid.add_row(reward, Text(sparkline(self.course, reached), ACCENT), behaviour)
        return grid


def fitted(pieces: Sequence[Piece], width: int) -> Text:
    """The pieces that fit on one line, the first ones first."""
    from rich.text import Text

    line = Text(no_wrap=True)
    for label, text, style in pieces:
        piece = Text.assemble(" " * GAP if line else "", (f"{label} " if label else "", "dim"), (text, style))
        if len(line) + len(piece) <= width:
            line.append_text(piece)
    return line


def clock_time(seconds: float) -> str:
    """m:ss, or h:mm:ss."""
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"


def sparkline(values: Sequence[float], width: int) -> str:
    """The course of a number in one line of blocks, each the mean of its stretch; the lowest to the highest of them."""
    n = min(width, len(values))
    if not n:
        return ""
    means = [
        sum(part) / len(part) for i in range(n) if (part := values[i * len(values) // n : (i + 1) * len(values) // n])
    ]
    low, high = min(means), max(means)
    span = max(high - low, 1e-9)
    return "".join(BLOCKS[min(len(BLOCKS) - 1, int((m - low) / span * len(BLOCKS)))] for m in means)
