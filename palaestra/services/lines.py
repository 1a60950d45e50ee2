"""Child processes that are asked and answer in lines of JSON objects: one question at a time, or
many in flight.

Both ends are here. A child that cannot import the package speaks the same lines with the standard
library alone (`engines/vllm_process/server.py`). Two kinds of children speak otherwise: the sandbox takes
binary frames on a socket of its own, since what it runs owns the standard streams and may neither
read nor forge an answer; the ledger's cells are only waited for, and answer by the files that they
leave.
"""

from __future__ import annotations

import asyncio
import json
import os
import select
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent import futures
from contextlib import suppress
from pathlib import Path
from typing import Any, TypeAlias

from palaestra.errors import Fatal, Fault

LAST = 12  # lines of standard error that tell why it died
PATIENCE = 10.0  # seconds a child may take to end by itself

LineMessage = dict[str, Any]
Answer: TypeAlias = "asyncio.Future[LineMessage] | futures.Future[LineMessage]"


class Expired(Exception):
    """The time limit was reached."""


class Died(Exception):
    """The child ended without an answer."""


# ---- the parent's side


class LineProcess:
    """A child process and the lines to and from it. It must end when its standard input does."""

    def __init__(
        self,
        command: Sequence[str],
        env: Mapping[str, str] | None = None,
        log: Path | None = None,
        apart: bool = False,
    ):
        """
        Args:
            env: its whole environment; None = this process's.
            log: a file for its standard error; None = nowhere.
            apart: it leads a process group of its own, so a Ctrl-C at the terminal does not reach
                it.
        """
        self.log, self.apart = log, apart
        with open(log or os.devnull, "wb") as stderr:
            self.process = subprocess.Popen(
                command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=stderr,
                env=None if env is None else dict(env),
                start_new_session=apart,
            )
        self._rest = b""

    def send(self, message: LineMessage) -> None:
        """Raises Died."""
        stream = self.process.stdin
        assert stream is not None
        try:
            stream.write(json.dumps(message).encode() + b"\n")
            stream.flush()
        except (OSError, ValueError):
            raise Died from None

    def receive(self, seconds: float | None = None) -> LineMessage:
        """The next message; what else it printed is passed over. Raises Expired or Died; None =
        waits as long as it lives.
        """
        end = None if seconds is None else time.monotonic() + seconds
        while True:
            line = self._line(end)
            if line.startswith(b"{"):
                return json.loads(line)

    def _line(self, end: float | None) -> bytes:
        stream = self.process.stdout
        assert stream is not None
        while b"\n" not in self._rest:
            if (
                end is not None
                and not select.select([stream], [], [], max(0.0, end - time.monotonic()))[0]
            ):
                raise Expired
            more = os.read(stream.fileno(), 1 << 16)
            if not more:
                raise Died
            self._rest += more
        line, _, self._rest = self._rest.partition(b"\n")
        return line

    def last_words(self) -> str:
        """The last lines of its log."""
        there = self.log is not None and self.log.exists()
        lines = self.log.read_text(errors="replace").splitlines() if self.log and there else []
        return (
            " | ".join(line.strip() for line in lines[-LAST:] if line.strip()) or "it said nothing"
        )

    def end(self, patience: float = 0.0) -> None:
        """Ends it, and with force what does not end by itself in `patience` seconds."""
        with suppress(OSError):
            if patience and self.process.stdin:
                self.process.stdin.close()
        if self.process.returncode is None:  # else its number may be another's by now
            with suppress(subprocess.TimeoutExpired):
                self.process.wait(patience)
            self._kill()
        self.process.wait()

    def wait(self) -> int:
        """Its status, when it has ended. What it started ends with it, where it leads a group."""
        status = self.process.wait()
        self._kill()
        return status

    def _kill(self) -> None:
        with suppress(ProcessLookupError):
            if self.apart:
                os.killpg(self.process.pid, signal.SIGKILL)
            else:
                self.process.kill()

    def stop(self) -> None:
        """Ends it at once and closes its streams; not while another thread receives."""
        self.end()
        for stream in (self.process.stdin, self.process.stdout):
            with suppress(OSError):
                if stream:
                    stream.close()


class Child:
    """A process apart with many questions in flight; its death is the `Fatal` of each that is open
    or comes later.
    """

    def __init__(self, name: str, command: Sequence[str], env: Mapping[str, str], log: Path):
        self.name = name
        self._lines = LineProcess(command, env, log, apart=True)
        self._open: dict[int, Answer] = {}
        self._lock = threading.Lock()
        self._count = 0
        self._death: Fatal | None = None
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    @property
    def pid(self) -> int:
        return self._lines.process.pid

    def expect(self, answer: Answer) -> int:
        """The id that a question must carry so that its answer comes to `answer`."""
        with self._lock:
            if self._death:
                raise self._death
            self._count += 1
            self._open[self._count] = answer
            return self._count

    def send(self, message: LineMessage) -> None:
        with suppress(Died):  # the reader tells all who wait
            self._lines.send(message)

    def ask_now(self, message: LineMessage, seconds: float) -> LineMessage:
        """The answer to one question. This thread, and a loop that runs in it, stand still for it.

        Raises Fatal where the child has died, or says nothing for so many seconds.
        """
        answer: futures.Future[LineMessage] = futures.Future()
        self.send({"id": self.expect(answer), **message})
        try:
            return answer.result(seconds)
        except futures.TimeoutError:
            late = f"{self.name} did not answer {list(message)} in {seconds:g} s"
            raise Fatal("engine", late) from None

    def _read(self) -> None:
        with suppress(Died):
            while True:
                message = self._lines.receive()
                with self._lock:
                    future = self._open.pop(message["id"])
                self._settle(future, message)
        status = self._lines.wait()
        with self._lock:
            self._death = Fatal(
                "engine", f"{self.name} {describe_end(status)}: {self._lines.last_words()}"
            )
            waiting, self._open = list(self._open.values()), {}
        for future in waiting:
            self._settle(future, self._death)

    def _settle(self, future: Answer, result: LineMessage | Fault) -> None:
        def settle() -> None:
            if future.done():  # whoever asked has given up
                return
            if isinstance(result, Fault):
                future.set_exception(result)
            else:
                future.set_result(result)

        if isinstance(future, futures.Future):  # whose thread waits, and no loop
            return settle()
        with suppress(RuntimeError):  # the loop has been closed, so nobody waits
            future.get_loop().call_soon_threadsafe(settle)

    def close(self) -> None:
        self._lines.end(PATIENCE)


def describe_end(status: int) -> str:
    """How a process ended, from its exit status."""
    return (
        f"was ended by {signal.Signals(-status).name}"
        if status < 0
        else f"ended with status {status}"
    )


# ---- the child's side


def questions() -> Iterator[LineMessage]:
    """What the parent asks, until it ends."""
    return map(json.loads, sys.stdin)


def answer_sender() -> Callable[[LineMessage], None]:
    """What sends an answer. From here on standard output is for answers alone; what libraries print
    goes to standard error.
    """
    out = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)

    def answer(message: LineMessage) -> None:
        out.write(json.dumps(message) + "\n")
        out.flush()

    return answer
