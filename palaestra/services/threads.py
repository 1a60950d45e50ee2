"""Work beside the run's own loop: threads that do not keep the process alive, and a loop in one."""

from __future__ import annotations

import asyncio
import signal
import threading
from collections.abc import Callable, Coroutine
from concurrent.futures import Future
from contextvars import ContextVar
from functools import wraps
from typing import Any


class SignalWatch:
    """Notes whether the work that it watches asks for signals, which threads cannot have."""

    def __init__(self) -> None:
        self.asked = False


WATCH: ContextVar[SignalWatch | None] = ContextVar("watch", default=None)
# the functions of `signal` that Python refuses outside of the main thread
WATCHED = ("signal", "set_wakeup_fd")


def watch_signals() -> None:
    """Lets the watches of this process note calls of `signal.signal` and its like, which go on as
    they are: code that catches their error cannot be told otherwise from code that works.
    """
    for name in WATCHED:
        plain = getattr(signal, name)
        if not hasattr(plain, "watched"):
            setattr(signal, name, _noting(plain))


def _noting(plain: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(plain)
    def call(*args: Any, **kwargs: Any) -> Any:
        if (watch := WATCH.get()) is not None:
            watch.asked = True
        return plain(*args, **kwargs)

    vars(call)["watched"] = True
    return call


IDLE_LOOPS: list[asyncio.AbstractEventLoop] = []  # making one takes as long as starting a thread


def run_in_thread(work: Callable[[], Any], name: str) -> Future[Any]:
    """Runs it in a thread that does not keep the process alive and has an event loop, as the main
    thread of a program has.
    """
    future: Future[Any] = Future()

    def run() -> None:
        loop = IDLE_LOOPS.pop() if IDLE_LOOPS else asyncio.new_event_loop()
        asyncio.set_event_loop(loop)
        try:
            result = work()
        except BaseException as error:
            if future.set_running_or_notify_cancel():
                future.set_exception(error)
        else:
            if future.set_running_or_notify_cancel():
                future.set_result(result)
        finally:
            if not loop.is_closed():
                IDLE_LOOPS.append(loop)

    threading.Thread(target=run, name=name, daemon=True).start()
    return future


class LoopThread:
    """An event loop in a thread of its own: a coroutine that blocks it does not block the run."""

    def __init__(self, name: str) -> None:
        self._loop = asyncio.new_event_loop()
        threading.Thread(target=self._loop.run_forever, name=name, daemon=True).start()

    def submit(self, work: Coroutine[Any, Any, Any]) -> Future[Any]:
        return asyncio.run_coroutine_threadsafe(work, self._loop)
