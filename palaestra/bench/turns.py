"""Two processes that step in turns: each waits for a word and answers with its report."""

from __future__ import annotations

import os
import queue
import sys
import threading
from collections.abc import Generator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, ClassVar

import torch

from palaestra.errors import Fault
from palaestra.services.lines import (
    Died,
    LineMessage,
    LineProcess,
    answer_sender,
    questions,
)

WATCH_SECONDS = 0.005  # seconds between two looks at the memory


class Turns:
    """The worker's side. It ends with its parent, also in the middle of a step."""

    def __init__(self) -> None:
        self.report, self._words = answer_sender(), queue.Queue[LineMessage]()
        threading.Thread(target=self._listen, daemon=True).start()

    def ready(self) -> None:
        self.report({"ready": True, "resident_mb": resident_mb()})

    def wait(self) -> None:
        """Until there is a step to take."""
        self._words.get()

    def _listen(self) -> None:
        for word in questions():
            self._words.put(word)
        os._exit(0)  # nobody reads what this step would find


class TurnWorker:
    """The other side of one: `go()` lets it take one step and gives its report. `seed` chooses the
    problems that are drawn.
    """

    def __init__(self, module: str, work: str, folder: Path, seed: int = 0):
        folder.mkdir(parents=True, exist_ok=True)
        self._lines = LineProcess(
            [sys.executable, "-m", module, work, str(folder), str(seed)], log=folder / "log"
        )
        try:
            self.started = self._read()
        except BaseException:
            self.close()
            raise

    def go(self) -> dict[str, Any]:
        with suppress(Died):  # reading says so
            self._lines.send({"go": True})
        return self._read()

    def close(self) -> None:
        self._lines.stop()

    def _read(self) -> dict[str, Any]:
        try:
            return self._lines.receive()
        except Died:
            raise Fault("bench", f"a worker ended early: {self._lines.last_words()}") from None


class Memory:
    """Peaks of a step's resident memory by phase in MB, and its size at the entry ("base"), looked
    at every few milliseconds.

    "rollout" is what precedes the "update", "rest" what follows it. On a CUDA device: what the
    allocator holds.
    """

    now: ClassVar[str] = "rollout"

    def __init__(self) -> None:
        self.peaks: dict[str, float] = {}
        self._over = threading.Event()

    @classmethod
    @contextmanager
    def phase(cls, name: str) -> Generator[None]:
        before, updates = cls.now, name in ("forward", "backward", "optimiser")
        cls.now = "update" if updates else name
        try:
            yield
        finally:
            cls.now = "rest" if updates and before == "rollout" else before

    def __enter__(self) -> Memory:
        Memory.now = "rollout"
        self.peaks["base"] = resident_mb()
        self._thread = threading.Thread(target=self._watch, daemon=True)
        self._thread.start()
        return self

    def _watch(self) -> None:
        while not self._over.wait(WATCH_SECONDS):
            self.peaks[Memory.now] = max(self.peaks.get(Memory.now, 0.0), resident_mb())

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()


def resident_mb() -> float:
    if torch.cuda.is_initialized():
        return torch.cuda.memory_reserved() / 2**20
    with open("/proc/self/statm") as f:
        return int(f.read().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 2**20
