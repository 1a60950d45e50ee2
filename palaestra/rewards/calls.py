"""Calls of a user's functions: beside the loop, bounded in number and time, and told of while they
wait.

A plain function runs in a thread that does not keep the process alive; an async one runs in a loop
of its own, so that one that blocks does not block the run.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Awaitable, Callable, Generator, Hashable
from concurrent.futures import Future
from contextlib import contextmanager
from functools import cache
from typing import Any
from weakref import WeakKeyDictionary

from palaestra.errors import UserError
from palaestra.services.threads import LoopThread, run_in_thread

TELL_EVERY = 10.0  # seconds after which it is said what is waiting
HUNG_THREAD = "; a hung thread cannot be ended, so the run is"


class Hung(UserError):
    """A reward that gave nothing in its time."""

    def __init__(self, text: str, seconds: float):
        super().__init__(text)
        self.seconds = seconds


class CallPool:
    """At most so many calls of one function at a time, in one loop; it counts what waits."""

    def __init__(self, workers: int) -> None:
        self.door = asyncio.Semaphore(workers)
        self.waiting = self.done = 0
        self._teller: asyncio.Task[None] | None = None

    @contextmanager
    def queue(self, n: int, name: str, say: Callable[[str], None]) -> Generator[None]:
        """Counts `n` answers as waiting; `say` hears every few seconds how many there are."""
        self.waiting += n
        if self._teller is None:
            self._teller = asyncio.get_running_loop().create_task(self._tell(name, say))
        try:
            yield
        finally:
            self.waiting, self.done = self.waiting - n, self.done + n
            if not self.waiting:
                self._teller.cancel()
                self._teller, self.done = None, 0

    async def _tell(self, name: str, say: Callable[[str], None]) -> None:
        while True:
            await asyncio.sleep(TELL_EVERY)
            say(f"{name}: {self.waiting} answers wait for their reward, {self.done} have it")


POOLS: WeakKeyDictionary[asyncio.AbstractEventLoop, dict[Hashable, CallPool]] = WeakKeyDictionary()


def pool_of(who: Hashable, workers: int) -> CallPool:
    """The one pool of a function in this loop."""
    pools = POOLS.setdefault(asyncio.get_running_loop(), {})
    if who not in pools:
        pools[who] = CallPool(workers)
    return pools[who]


async def call_within(work: Callable[[], Any], name: str, timeout: float) -> Any:
    """What `work` returns, or what the awaitable gives that it returns. Raises `Hung` after
    `timeout` seconds of either, and what it raises.
    """
    found = await _result(run_in_thread(work, "user reward"), name, timeout, HUNG_THREAD)
    return (
        await _result(async_rewards().submit(_await(found)), name, timeout, "")
        if inspect.isawaitable(found)
        else found
    )


async def _result(work: Future[Any], name: str, timeout: float, hung: str) -> Any:
    waiting = asyncio.wrap_future(work)
    waiting.add_done_callback(_hear)
    done, _ = await asyncio.wait({waiting}, timeout=timeout)
    if not done:
        work.cancel()
        raise Hung(
            f"{name} gave nothing in {timeout:g} s{hung}; bound its work, or raise "
            "--reward-timeout",
            timeout,
        )
    return work.result()  # the waiting copy of a TimeoutError has no traceback


def _hear(done: asyncio.Future[Any]) -> None:
    """Takes note of an error for which nobody waits any more, since another one ended the run."""
    if not done.cancelled():
        done.exception()


async def _await(work: Awaitable[Any]) -> Any:
    return await work


@cache
def async_rewards() -> LoopThread:
    """Where the users' async functions run."""
    return LoopThread("async rewards")
