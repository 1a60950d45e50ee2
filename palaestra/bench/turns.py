"""Two processes that step in turns: each waits for a word on standard input and answers with a line of JSON."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, ClassVar

import torch

from palaestra.errors import Fault

MARK = "\x1ebench "  # before every line of ours, whatever libraries print
WATCH_SECONDS = 0.005  # seconds between two looks at the memory


class Turns:
    """The worker's side."""

    def __init__(self) -> None:
        self._out = os.fdopen(os.dup(1), "w")
        os.dup2(2, 1)  # what libraries print goes to standard error

    def ready(self) -> None:
        self.report({"ready": True, "resident_mb": resident_mb()})

    def wait(self) -> bool:
        return sys.stdin.readline().strip() == "go"

    def report(self, found: dict[str, Any]) -> None:
        self._out.write(MARK + json.dumps(found) + "\n")
        self._out.flush()


class TurnWorker:
    """The other side of one: `go()` lets it take one step and gives its report."""

    def __init__(self, module: str, work: str, folder: Path):
        folder.mkdir(parents=True, exist_ok=True)
        self.log = (folder / "log").open("w+")
        self.process = subprocess.Popen(
            [sys.executable, "-m", module, work, str(folder)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self.log,
            text=True,
        )
        self.started = self._read()

    def go(self) -> dict[str, Any]:
        assert self.process.stdin
        self.process.stdin.write("go\n")
        self.process.stdin.flush()
        return self._read()

    def close(self) -> None:
        self.process.kill()
        self.process.wait()
        self.log.close()

    def _read(self) -> dict[str, Any]:
        assert self.process.stdout
        for line in self.process.stdout:
            if line.startswith(MARK):
                return json.loads(line.removeprefix(MARK))
        self.log.seek(0)
        last = self.log.read().strip().splitlines()[-3:]
        raise Fault("bench", f"a worker ended early: {' | '.join(last)}")


class Memory:
    """Peaks of a step's resident memory by phase in MB, and its size at the entry ("base"), looked at every few milliseconds.

    "rollout" is what precedes the "update", "rest" what follows it. On a CUDA device: what the allocator holds.
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
