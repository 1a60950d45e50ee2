"""Sessions for agents: a pool of read-eval-print loops, each behind the walls of its own sandbox.

At most so many sessions are open at once; who comes later waits in line. A session begins with code
of ours, the tools, which is run again where a cell broke a limit and took all names with it. An
interpreter serves one session after another, each in a fork of its own (`inside/supervise.py`), so
a session costs milliseconds and finds nothing of those before it. After arXiv:2506.23667 (L-Zero),
whose workers have the network and their keys in the jail; these have neither.
"""

from __future__ import annotations

import asyncio
import os
import threading
import time
from collections import deque
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import cache
from itertools import count
from typing import Any

from palaestra.cores import cores
from palaestra.errors import Fault, UserError
from palaestra.services import sandbox
from palaestra.services.sandbox.values import Limits, Ran
from palaestra.services.sandbox.worker import LocalSession, Pool

CELL = Limits(seconds=1.0, memory_mb=256, output_bytes=4_000, file_mb=8, processes=16)
SECONDS = 240.0  # of a session, as the task time-out of the paper's code
SETUP_SECONDS = 10.0  # of the tools, which are ours


class AgentSession:
    """One session: tools first, then cells. Calls block, and one waits for another."""

    def __init__(self, opened: LocalSession, tools: str, limits: Limits, seconds: float):
        self.opened, self.tools, self.limits = opened, tools, limits
        self.over = time.monotonic() + seconds
        self.turn = threading.Lock()
        self.cells: list[str] = []  # that were run

    def run(self, code: str) -> Ran:
        """A cell, in a session that has its tools; refused where the session's time is over. Raises
        Fault where the tools cannot be defined.
        """
        with self.turn:
            self.cells.append(code)
            left = self.over - time.monotonic()
            if left <= 0:
                self.opened.close()
                return Ran(status="refused", stderr="the session's time is over\n")
            self._prepare()
            return self.opened.run(
                code, replace(self.limits, seconds=min(self.limits.seconds, left))
            )

    def _prepare(self) -> None:
        """Defines the tools where there are none."""
        if self.opened.alive:
            return
        outcome = self.opened.run(self.tools, replace(self.limits, seconds=SETUP_SECONDS))
        if outcome.status != "ok" or not self.opened.alive:
            raise Fault(
                "sandbox", f"the tools of a session: {outcome.status} {outcome.stderr[-300:]}"
            )

    def close(self) -> None:
        with self.turn:
            self.opened.close()


class SessionPool:
    """Sessions by number, at most `most` at once (0 = two a core).

    Args:
        most: sessions that are open at once.
        guarded: inside bubblewrap; False runs model-written code WITHOUT isolation.
        beside: cells of several sessions run beside each other and beside the event loop; False =
            one after the other, in the order in which they are asked for, and the loop waits.
    """

    def __init__(self, most: int = 0, guarded: bool = True, beside: bool = True):
        self.most, self.beside = most or 2 * cores(), beside
        self.workers = Pool(guarded, keep=self.most)
        self.reset()
        os.register_at_fork(after_in_child=self.reset)  # sessions are those of the parent

    def reset(self) -> None:
        self.sessions: dict[int, AgentSession] = {}
        self.numbers = count()
        self.held = 0
        self.waiting: deque[asyncio.Future[None]] = deque()
        self.threads = ThreadPoolExecutor(max(2, cores()), thread_name_prefix="cells")

    async def open(self, tools: str = "", limits: Limits = CELL, seconds: float = SECONDS) -> int:
        """A session as soon as there is room; its number.

        Args:
            tools: Python that defines what the cells may call. It is run with their rights.
            limits: of a cell; memory and files are those of the whole session.
            seconds: of the whole session, after which it is ended.
        """
        await self._enter()
        number = next(self.numbers)
        opened = LocalSession(self.workers, {}, limits, seconds)
        self.sessions[number] = AgentSession(opened, tools, limits, seconds)
        return number

    async def run(self, number: int, code: str) -> Ran:
        """A cell of a session."""
        return await self._do(self.sessions[number].run, code)

    def cells(self, number: int) -> tuple[str, ...] | None:
        """The cells that a session has run; None = it has ended, or never was."""
        session = self.sessions.get(number)
        return None if session is None else tuple(session.cells)

    async def close(self, number: int) -> None:
        """Ends a session, and all that it started. One that is unknown has ended."""
        session = self.sessions.pop(number, None)
        if session is not None:
            try:
                await self._do(session.close)
            finally:
                self._leave()

    def end(self) -> None:
        """Ends all sessions, and the interpreters that wait for others."""
        while self.sessions:
            self.sessions.popitem()[1].close()
            self._leave()
        self.workers.close()

    async def _do(self, work: Callable[..., Any], *given: Any) -> Any:
        if not self.beside:
            return work(*given)
        return await asyncio.get_running_loop().run_in_executor(self.threads, work, *given)

    async def _enter(self) -> None:
        if self.held < self.most:
            self.held += 1
            return
        place = asyncio.get_running_loop().create_future()
        self.waiting.append(place)
        try:
            await place  # whoever leaves hands on its room
        except asyncio.CancelledError:
            if place.done() and not place.cancelled():
                self._leave()
            raise

    def _leave(self) -> None:
        while self.waiting:
            place = self.waiting.popleft()
            if not place.done() and not place.get_loop().is_closed():
                place.set_result(None)
                return
        self.held -= 1


@cache
def session_pool(most: int = 0, beside: bool = True) -> SessionPool:
    """This process's pool of so many sessions. Raises UserError where code cannot be isolated."""
    kind = sandbox.sandbox_kind()
    if refusal := kind.refusal():
        raise UserError(f"a notebook needs the sandbox: {refusal}")
    return SessionPool(most, guarded=kind.name == "bubblewrap", beside=beside)
