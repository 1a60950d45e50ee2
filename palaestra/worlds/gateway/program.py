"""Commands of the user that run beside a run, each in a process group of its own."""

from __future__ import annotations

import asyncio
import json
import os
import shlex
import shutil
import signal
import tempfile
from collections.abc import Coroutine, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any, TypeVar

from palaestra.errors import UserError
from palaestra.services.threads import LoopThread
from palaestra.worlds.gateway.server import read_outcome

T = TypeVar("T")
KEPT = 1 << 16  # bytes of the end of what an agent writes
GRACE = 2.0  # seconds between SIGTERM and SIGKILL, and for pipes to close


@lru_cache(maxsize=1)
def _programs() -> LoopThread:
    """The event loop of all programs, which outlives the loops of those that play with them."""
    return LoopThread("agents")


async def in_programs(work: Coroutine[Any, Any, T]) -> T:
    """Does work on programs in their own event loop."""
    return await asyncio.wrap_future(_programs().submit(work))


def end_all(programs: Iterable[AgentProgram]) -> None:
    """Ends programs, from outside of any event loop."""
    for future in [_programs().submit(program.end()) for program in programs]:
        future.result()


@dataclass(eq=False)
class AgentProgram:
    """A command under way, with the end of what it wrote; its methods run in `in_programs`. One
    that is `kept` gets a task on each line, and answers it by a line of JSON with a reward or an
    answer.
    """

    process: asyncio.subprocess.Process
    folder: Path
    kept: bool = False
    out: bytearray = field(default_factory=bytearray)
    err: bytearray = field(default_factory=bytearray)
    outcome: dict[str, Any] = field(default_factory=dict)  # of the task in hand
    answered: asyncio.Event = field(default_factory=asyncio.Event)
    tasks: tuple[asyncio.Task[None], ...] = ()

    @classmethod
    async def start(
        cls, command: str, given: Mapping[str, Any], env: Mapping[str, str], *, kept: bool = False
    ) -> AgentProgram:
        """A program with its first task. Raises UserError where it cannot be started."""
        folder = Path(tempfile.mkdtemp(prefix="palaestra-agent-"))
        file = folder / "task.json"
        file.write_text(json.dumps(given), encoding="utf-8")
        pipe = asyncio.subprocess.PIPE
        try:
            process = await asyncio.create_subprocess_exec(
                *shlex.split(command), stdin=pipe, stdout=pipe, stderr=pipe,
                env={**env, "PALAESTRA_TASK": str(file)}, start_new_session=True,
            )  # fmt: skip
        except BaseException as error:
            shutil.rmtree(folder, ignore_errors=True)
            if isinstance(error, OSError):
                raise UserError(f"--agent {command!r} cannot be started: {error}") from None
            raise
        program = cls(process, folder, kept)
        reads = (
            program._read(process.stdout, program.out, kept),
            program._read(process.stderr, program.err, False),
        )
        program.tasks = tuple(asyncio.create_task(w) for w in reads)
        await program.give(given)
        return program

    @property
    def alive(self) -> bool:
        return self.process.returncode is None

    async def give(self, task: Mapping[str, Any]) -> None:
        """Hands it a task on its standard input, which one that is not kept need not read."""
        self.outcome = {}
        self.answered.clear()
        self.tasks = (*self.tasks[:2], asyncio.create_task(self._write(json.dumps(task).encode())))

    async def over(self) -> None:
        """Waits for its end, or for its answer to the task in hand."""
        ends = [asyncio.ensure_future(x) for x in (self.process.wait(), self.answered.wait())]
        try:
            await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for each in ends:
                each.cancel()

    async def end(self) -> None:
        """Ends the process group, and reads what was written before."""
        self._signal(signal.SIGTERM)
        with suppress(TimeoutError):
            async with asyncio.timeout(GRACE):
                await self.process.wait()
        self._signal(signal.SIGKILL)
        await self.process.wait()
        _, late = await asyncio.wait(self.tasks, timeout=GRACE)
        for task in late:  # somebody who left the group holds the pipe
            task.cancel()
        shutil.rmtree(self.folder, ignore_errors=True)

    def last_line(self, written: bytearray) -> str:
        """The last line that is not empty."""
        lines = written.decode(errors="replace").strip().splitlines()
        return lines[-1].strip() if lines else ""

    def _signal(self, number: int) -> None:
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(self.process.pid, number)

    async def _write(self, data: bytes) -> None:
        stdin = self.process.stdin
        assert stdin is not None
        with suppress(ConnectionError):
            stdin.write(data + b"\n")
            await stdin.drain()
        if not self.kept:
            stdin.close()

    async def _read(
        self, stream: asyncio.StreamReader | None, end: bytearray, answers: bool
    ) -> None:
        assert stream is not None
        line = b""
        while data := await stream.read(KEPT):
            end += data
            del end[:-KEPT]
            *lines, line = (line + data).split(b"\n") if answers else (b"",)
            line = line[-KEPT:]
            for each in lines:
                self._answer(each)

    def _answer(self, line: bytes) -> None:
        """Notes an answer; other lines are the agent's own talk."""
        with suppress(ValueError, RecursionError):
            if outcome := read_outcome(json.loads(line)):
                self.outcome = outcome
                self.answered.set()
