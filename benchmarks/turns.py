"""Processes that step in turns: each waits for a word and answers with its report."""

from __future__ import annotations

import os
import queue
import sys
import tempfile
import threading
from collections.abc import Generator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, ClassVar

import torch

from benchmarks.work import Work
from palaestra.errors import Fault
from palaestra.run.parts import Rounds
from palaestra.services.lines import (
    Died,
    LineMessage,
    LineProcess,
    answer_sender,
    questions,
)

ROOT = Path(__file__).parents[1]
WATCH_SECONDS = 0.005  # seconds between two looks at the memory
# the other system's threads wait as they do without us: what libgomp does by itself
PEER, SPINS = "benchmarks.peer", "300000"


def environment() -> dict[str, str]:
    """The environment of a process that imports `benchmarks`, wherever the command was called."""
    before = os.environ.get("PYTHONPATH")
    return os.environ | {"PYTHONPATH": os.pathsep.join([str(ROOT), *([before] if before else [])])}


class Turns:
    """The worker's side. It ends with its parent, also in the middle of a step."""

    def __init__(self) -> None:
        self.report, self._words = answer_sender(), queue.Queue[LineMessage]()
        threading.Thread(target=self._listen, daemon=True).start()

    def ready(self) -> None:
        self.report({"ready": True, "memory_mb": memory_mb()})

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
            [sys.executable, "-m", module, work, str(folder), str(seed)],
            log=folder / "log",
            env=environment() | ({"GOMP_SPINCOUNT": SPINS} if module == PEER else {}),
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


def interleave(
    workers: Mapping[str, tuple[str, Work]], rounds: Rounds
) -> dict[str, list[dict[str, Any]]]:
    """Reports of workers that take a step in each round, one after the other. `workers`: by name,
    the module that does the work, and the work.
    """
    started: dict[str, TurnWorker] = {}
    with tempfile.TemporaryDirectory() as folder:
        try:
            for _ in rounds:
                # from where another process stopped, all draw other problems than it drew
                for name, (module, work) in workers.items():
                    if name not in started:
                        place = Path(folder) / name
                        started[name] = TurnWorker(module, work.json(), place, rounds.before)
                rounds.put({name: worker.go() for name, worker in started.items()})
        finally:
            for worker in started.values():
                worker.close()
    return {name: [r[name] for r in rounds.found] for name in workers}


class Memory:
    """Peaks of a step's memory by phase in MB, and its size at the entry ("base").

    "rollout" is what precedes the "update", "rest" what follows it. On a CUDA device: what tensors
    hold, as torch counts it; else what is resident, looked at every few milliseconds.
    """

    now: ClassVar[str] = "rollout"
    watched: ClassVar[Memory | None] = None  # the step under way

    def __init__(self) -> None:
        self.peaks: dict[str, float] = {}
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)

    @classmethod
    @contextmanager
    def phase(cls, name: str) -> Generator[None]:
        before, updates = cls.now, name in ("forward", "backward", "optimiser")
        cls._go_on("update" if updates else name)
        try:
            yield
        finally:
            cls._go_on("rest" if updates and before == "rollout" else before)

    @classmethod
    def _go_on(cls, name: str) -> None:
        """From here on peaks are another phase's."""
        if cls.watched is not None:
            cls.watched._note()
        cls.now = name

    def __enter__(self) -> Memory:
        Memory.now, Memory.watched = "rollout", self
        self.peaks["base"] = memory_mb()
        if torch.cuda.is_initialized():
            torch.cuda.reset_peak_memory_stats()
        else:
            self._thread.start()
        return self

    def _watch(self) -> None:
        while not self._over.wait(WATCH_SECONDS):
            self._note()

    def _note(self) -> None:
        held = memory_mb()
        if torch.cuda.is_initialized():
            held = torch.cuda.max_memory_allocated() / 2**20
            torch.cuda.reset_peak_memory_stats()
        self.peaks[Memory.now] = max(self.peaks.get(Memory.now, 0.0), held)

    def __exit__(self, *_: object) -> None:
        self._note()
        Memory.watched = None
        if self._thread.is_alive():
            self._over.set()
            self._thread.join()


def memory_mb() -> float:
    """What this process holds: tensors on a GPU that it uses, else what is resident."""
    if torch.cuda.is_initialized():
        return torch.cuda.memory_allocated() / 2**20
    with open("/proc/self/statm") as f:
        return int(f.read().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 2**20
