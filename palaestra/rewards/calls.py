"""Calls of a user's functions: beside the loop, bounded in number and time, and told of while they
wait.

A plain function runs in a thread that does not keep the process alive; an async one runs in a loop
of its own, so that one that blocks does not block the run. One that needs the main thread, as
signals do, is noticed in its first call and from then on called in a process of its own: see
`palaestra.rewards.forked`.
"""

from __future__ import annotations

import asyncio
import inspect
import re
from collections.abc import Awaitable, Callable, Generator, Hashable
from concurrent.futures import Future
from contextlib import contextmanager
from functools import cache
from typing import Any
from weakref import WeakKeyDictionary

from palaestra.cores import cores
from palaestra.errors import Fault, TimedOut, UserError
from palaestra.rewards.forked import Arguments, Ended, ForkedCopy
from palaestra.services.threads import WATCH, LoopThread, SignalWatch, run_in_thread

TELL_EVERY = 10.0  # seconds after which it is said what is waiting
HUNG_THREAD = "; a hung thread cannot be ended, so the run is"
MOST_HUNG = 16  # calls of one function that may hang in any case before the run ends
# what errors say that are raised because this is another thread than the main one
OF_THREADS = re.compile(r"main thread|(same|different|another) thread|event loop in thread")


class Hung(UserError):
    """A reward that gave nothing in its time; as the `fault` of an answer where the run goes on."""

    def __init__(self, what: str, seconds: float, cure: str):
        super().__init__(f"{what}{cure}")
        self.seconds, self.fault = seconds, TimedOut(what)
        self.stays = cure.startswith(HUNG_THREAD)  # the call goes on beside the run


class CallPool:
    """At most so many calls of one function at a time, in one loop; it counts what waits, and what
    hung.
    """

    def __init__(self, workers: int) -> None:
        self.door = asyncio.Semaphore(workers)
        self.calls = self.hung = 0
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

    def goes_on(self, hung: Hung) -> bool:
        """Counts a call that hung. False where there are too many: threads that stay, or more than
        half of all calls.
        """
        self.hung += 1
        return self.hung <= MOST_HUNG or not (hung.stays or 2 * self.hung > self.calls)

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


async def call_within(
    function: Callable[..., Any],
    arguments: Callable[[], Arguments],
    who: Hashable,
    name: str,
    file: str,
    timeout: float,
) -> Any:
    """What the function returns, or what the awaitable gives that it returns.

    Args:
        arguments: makes those of this call; a second call of them gets others.
        who: the function, as `pool_of` knows it.
        name: how messages call it.
        file: where it is written.
        timeout: seconds of a call, and again of what it awaits.

    Raises:
        Hung: it gave nothing in its time.
        Exception: what the function raises.
    """
    if who not in NEED_MAIN_THREAD:
        watch = SignalWatch()
        try:
            value = await _in_thread(function, arguments(), watch, name, timeout)
            if not watch.asked:
                return value
        except Hung:
            raise
        except Exception as error:
            if not watch.asked and not OF_THREADS.search(str(error)):
                raise
        NEED_MAIN_THREAD[who] = []
    # a copy of this process takes memory and a core
    async with pool_of((who, "main thread"), cores()).door:
        return await _on_main_thread(function, arguments(), who, name, file, timeout)


async def _in_thread(
    function: Callable[..., Any],
    arguments: Arguments,
    watch: SignalWatch,
    name: str,
    timeout: float,
) -> Any:
    places, names = arguments

    def work() -> Any:
        WATCH.set(watch)
        return function(*places, **names)

    async def finish(awaitable: Awaitable[Any]) -> Any:
        WATCH.set(watch)
        return await awaitable

    value = await _result(run_in_thread(work, "user reward"), name, timeout, HUNG_THREAD)
    if inspect.isawaitable(value):
        return await _result(async_rewards().submit(finish(value)), name, timeout)
    return value


async def _on_main_thread(
    function: Callable[..., Any],
    arguments: Arguments,
    who: Hashable,
    name: str,
    file: str,
    timeout: float,
) -> Any:
    """The call in a forked copy of this process, which is ended where it gives nothing in time."""
    idle, copies = NEED_MAIN_THREAD[who], list[ForkedCopy]()

    def work() -> Any:
        copies.append(idle.pop() if idle else ForkedCopy(function, name, file))
        return copies[0].call(arguments)

    try:
        value = await _result(run_in_thread(work, "user reward"), name, timeout)
    except (Fault, UserError) as error:
        if isinstance(error, Hung):
            copies[0].end()
        else:
            idle.append(copies[0])
        raise
    except Ended:
        copies[0].end()
        cure = "; let it return, or raise an error"
        raise Hung(f"{name} ended the process that it ran in", timeout, cure) from None
    idle.append(copies[0])
    return value


async def _result(work: Future[Any], name: str, timeout: float, hung: str = "") -> Any:
    waiting = asyncio.wrap_future(work)
    waiting.add_done_callback(_hear)
    done, _ = await asyncio.wait({waiting}, timeout=timeout)
    if not done:
        work.cancel()
        cure = f"{hung}; bound its work, or raise --reward-timeout"
        raise Hung(f"{name} gave nothing in {timeout:g} s", timeout, cure)
    return work.result()  # the waiting copy of a TimeoutError has no traceback


def _hear(done: asyncio.Future[Any]) -> None:
    """Takes note of an error for which nobody waits any more, since another one ended the run."""
    if not done.cancelled():
        done.exception()


# functions that need a main thread, each with the copies of this process that wait for a call
NEED_MAIN_THREAD: dict[Hashable, list[ForkedCopy]] = {}


@cache
def async_rewards() -> LoopThread:
    """Where the users' async functions run."""
    return LoopThread("async rewards")
