"""Work that may hang or eat memory, in a process of its own that is killed at its time limit.

The child reads a line of JSON and answers with one: {"task": NAME, ...} -> {"result": ...} or
{"refused": WHY}.
"""

from __future__ import annotations

import atexit
import contextlib
import os
import queue
import signal
import subprocess
import sys
from collections.abc import Generator
from functools import lru_cache
from pathlib import Path
from typing import Any

from palaestra.errors import Fault
from palaestra.services.lines import Died, Expired, LineProcess, answer_sender, questions

WORKERS = 2
START = 60.0  # seconds until a child must have said that it is there
ROOT = str(Path(__file__).parents[2])


class Alarmed(Expired):
    """The limit that the child set itself, by an alarm that ends it."""


class VerifierWorker:
    """One child process, started when it is first asked."""

    def __init__(self, module: str) -> None:
        self.module = module
        self.child: LineProcess | None = None

    def ask(self, request: dict[str, Any], seconds: float) -> dict[str, Any]:
        """Its answer. Raises Expired or Died; either way the next request gets a fresh child."""
        if self.child is None or self.child.process.poll() is not None:
            self._start()
        try:
            return self._exchange(request, seconds)
        except (Expired, Died):
            self.stop()
            raise

    def _start(self) -> None:
        path = os.pathsep.join([ROOT, *filter(None, [os.environ.get("PYTHONPATH")])])
        environment = {
            "PATH": os.environ.get("PATH", ""),
            "PYTHONPATH": path,
            "OMP_NUM_THREADS": "1",
        }
        self.child = LineProcess([sys.executable, "-m", self.module], environment)
        try:
            ready = self._exchange({"task": "ready"}, START)
        except (Expired, Died) as error:
            self.stop()
            raise Fault(
                "verifier",
                f"the process {self.module} did not start ({type(error).__name__.lower()})",
            ) from None
        if "refused" in ready:
            self.stop()
            raise Fault("verifier", str(ready["refused"]))

    def _exchange(self, request: dict[str, Any], seconds: float) -> dict[str, Any]:
        assert self.child is not None
        self.child.send(request)
        try:
            return self.child.receive(seconds)
        except Died:
            with contextlib.suppress(subprocess.TimeoutExpired):
                self.child.process.wait(1.0)
            if self.child.process.returncode == -signal.SIGALRM:
                raise Alarmed from None
            raise

    def stop(self) -> None:
        if self.child is not None:
            self.child.stop()
            self.child = None


@lru_cache(maxsize=8)
def pool(module: str) -> queue.LifoQueue[VerifierWorker]:
    """The last used child first, so that a second one starts only when two are asked at once."""
    idle_workers: queue.LifoQueue[VerifierWorker] = queue.LifoQueue()
    workers = [VerifierWorker(module) for _ in range(WORKERS)]
    for worker in workers:
        idle_workers.put(worker)
    atexit.register(lambda: [w.stop() for w in workers])
    return idle_workers


def ask(module: str, request: dict[str, Any], seconds: float) -> dict[str, Any]:
    """What a child of this module answers.

    A request on which two fresh children die is the policy's doing: Died. One death alone may be
    the machine's.
    """
    with _borrow(module) as worker:
        try:
            return worker.ask(request, seconds)
        except Died:
            return worker.ask(request, seconds)


@contextlib.contextmanager
def _borrow(module: str) -> Generator[VerifierWorker]:
    workers = pool(module)
    worker = workers.get()
    try:
        yield worker
    finally:
        workers.put(worker)


def serve(tasks: dict[str, Any], ready: Any, memory: int = 4 * 2**30) -> None:
    """The child's loop. What its libraries print goes nowhere."""
    import resource

    resource.setrlimit(resource.RLIMIT_AS, (memory, memory))
    send = answer_sender()
    for request in questions():
        try:
            answer = ready() if request["task"] == "ready" else tasks[request["task"]](request)
        except ImportError as error:
            answer = {"refused": f"{error}; install the extra that it belongs to"}
        except (Exception, RecursionError) as error:
            answer = {"refused": f"{type(error).__name__}: {error}"[:300]}
        send(answer)
