"""A child process that is asked and answers in JSON lines, many questions in flight."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import threading
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from palaestra.errors import Fatal, Fault

LAST = 12  # lines of standard error that tell why it died
PATIENCE = 10.0  # seconds a child may take to end by itself

LineMessage = dict[str, Any]


class Child:
    """Its death is the `Fatal` of every question that is open or comes later.

    It leads a process group of its own, so a Ctrl-C at the terminal does not reach it. It must end when its standard input does.
    """

    def __init__(self, name: str, command: Sequence[str], env: Mapping[str, str], log: Path):
        self.name, self.log = name, log
        with log.open("wb") as stderr:
            self._process = subprocess.Popen(
                command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=stderr,
                env=dict(env),
                start_new_session=True,
            )
        self._open: dict[int, asyncio.Future[LineMessage]] = {}
        self._lock = threading.Lock()
        self._count = 0
        self._death: Fatal | None = None
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    @property
    def pid(self) -> int:
        return self._process.pid

    def expect(self, answer: asyncio.Future[LineMessage]) -> int:
        """The id that a question must carry so that its answer comes to `answer`."""
        with self._lock:
            if self._death:
                raise self._death
            self._count += 1
            self._open[self._count] = answer
            return self._count

    def send(self, message: LineMessage) -> None:
        stream = self._process.stdin
        assert stream is not None
        with suppress(OSError, ValueError):  # it is dead: the reader tells all who wait
            stream.write(json.dumps(message).encode() + b"\n")
            stream.flush()

    def _read(self) -> None:
        stream = self._process.stdout
        assert stream is not None
        for line in stream:
            message: LineMessage = json.loads(line)
            with self._lock:
                future = self._open.pop(message["id"])
            self._settle(future, message)
        status = self._process.wait()
        with self._lock:
            self._death = Fatal("engine", f"{self.name} {_describe_end(status)}: {self._last()}")
            waiting, self._open = list(self._open.values()), {}
        for future in waiting:
            self._settle(future, self._death)

    def _settle(self, future: asyncio.Future[LineMessage], result: LineMessage | Fault) -> None:
        def settle() -> None:
            if future.done():  # whoever asked has given up
                return
            if isinstance(result, Fault):
                future.set_exception(result)
            else:
                future.set_result(result)

        with suppress(RuntimeError):  # the loop has been closed, so nobody waits
            future.get_loop().call_soon_threadsafe(settle)

    def _last(self) -> str:
        lines = self.log.read_text(errors="replace").splitlines() if self.log.exists() else []
        return " | ".join(line.strip() for line in lines[-LAST:] if line.strip()) or "it said nothing"

    def close(self) -> None:
        """Ends it, and with force what does not end by itself."""
        with suppress(OSError):
            if self._process.stdin:
                self._process.stdin.close()
        try:
            self._process.wait(PATIENCE)
        except subprocess.TimeoutExpired:
            with suppress(ProcessLookupError):
                os.killpg(self.pid, signal.SIGKILL)
            self._process.wait()


def _describe_end(status: int) -> str:
    return f"was ended by {signal.Signals(-status).name}" if status < 0 else f"ended with status {status}"
