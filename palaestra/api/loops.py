"""Coroutines called from plain code, also where an event loop runs already, as in a notebook."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Coroutine
from typing import Any, TypeVar

T = TypeVar("T")


def loop_runs() -> bool:
    """Whether the caller is inside a running event loop."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True


def run_blocking(work: Coroutine[Any, Any, T]) -> T:
    """The result of a coroutine. Inside a running event loop it runs in a thread with a loop of its
    own.

    An interrupt of the waiting thread (the stop button of a notebook) cancels the work and is
    raised again.
    """
    if not loop_runs():
        return asyncio.run(work)
    loop, results, errors = asyncio.new_event_loop(), list[T](), list[BaseException]()
    task = loop.create_task(work)

    def run() -> None:
        try:
            results.append(loop.run_until_complete(task))
        except BaseException as error:  # raised again in the thread that asked
            errors.append(error)
        finally:
            loop.run_until_complete(loop.shutdown_asyncgens())
            loop.close()

    thread = threading.Thread(target=run, name="palaestra")
    thread.start()
    try:
        thread.join()
    except KeyboardInterrupt:
        loop.call_soon_threadsafe(task.cancel)
        thread.join()
        raise
    if errors:
        raise errors[0]
    return results[0]
