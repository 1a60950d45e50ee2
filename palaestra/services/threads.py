"""Work beside the run's own loop: threads that do not keep the process alive, and a loop in one."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine
from concurrent.futures import Future
from typing import Any


def run_in_thread(work: Callable[[], Any], name: str) -> Future[Any]:
    """Runs it in a thread that does not keep the process alive."""
    future: Future[Any] = Future()

    def run() -> None:
        try:
            found = work()
        except BaseException as error:
            if future.set_running_or_notify_cancel():
                future.set_exception(error)
        else:
            if future.set_running_or_notify_cancel():
                future.set_result(found)

    threading.Thread(target=run, name=name, daemon=True).start()
    return future


class LoopThread:
    """An event loop in a thread of its own: a coroutine that blocks it does not block the run."""

    def __init__(self, name: str) -> None:
        self._loop = asyncio.new_event_loop()
        threading.Thread(target=self._loop.run_forever, name=name, daemon=True).start()

    def submit(self, work: Coroutine[Any, Any, Any]) -> Future[Any]:
        return asyncio.run_coroutine_threadsafe(work, self._loop)
