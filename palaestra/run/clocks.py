"""How long the phases of a run take."""

from __future__ import annotations

import time
from collections.abc import Callable, Generator
from contextlib import contextmanager

import torch

PHASES = ("rollout", "reward", "forward", "backward", "optimiser", "other")


class Clocks:
    """Seconds by phase.

    Args:
        on_gpu: whether some of the run's models are on a GPU.
        engine_seconds: what the engines of this process took so far.
    """

    def __init__(self, on_gpu: Callable[[], bool], engine_seconds: Callable[[], float]):
        self.on_gpu, self.engine_seconds = on_gpu, engine_seconds
        self.seconds: dict[str, float] = dict.fromkeys(PHASES, 0.0)
        self._judging, self._judged_from = 0, 0.0

    @contextmanager
    def phase(self, name: str) -> Generator[None]:
        """Charges the time of a synchronous block to a phase, without what inner phases take."""
        self.settle()
        begin = time.perf_counter()
        inner = sum(self.seconds.values())
        try:
            yield
        finally:
            self.settle()
            inside = sum(self.seconds.values()) - inner
            self.seconds[name] += time.perf_counter() - begin - inside

    def settle(self) -> None:
        """Lets a GPU finish what it was given: its work is done behind the program's back."""
        if self.on_gpu():
            torch.cuda.synchronize()

    @contextmanager
    def judging(self) -> Generator[None]:
        """Charges to "reward" the time in which at least one reward is awaited, without what
        engines take meanwhile.
        """
        if self._judging == 0:
            self._judged_from = time.perf_counter() - self.engine_seconds()
        self._judging += 1
        try:
            yield
        finally:
            self._judging -= 1
            if self._judging == 0:
                self.seconds["reward"] += (
                    time.perf_counter() - self.engine_seconds() - self._judged_from
                )
