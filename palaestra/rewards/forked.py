"""Calls of a user's function on the main thread of a process.

Signals, and so most time limits (`signal.alarm`, the decorators of timeout packages, math-verify),
work on a main thread alone, and rewards run in threads. A function that asks for signals there is
called in a forked copy of this process instead, in which it has the main thread for itself. The
copy knows what this process knew when it was forked, and stays for further calls. One that gives
nothing in its time is ended.
"""

from __future__ import annotations

import asyncio
import atexit
import inspect
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from multiprocessing.connection import Connection, Pipe
from typing import Any, TypeAlias

from palaestra.errors import Fault, UserError
from palaestra.tasks.user_code import locate_error

Arguments: TypeAlias = tuple[Sequence[Any], Mapping[str, Any]]  # by place, by name
LOOK_EVERY = 1.0  # seconds between two looks of a copy at whether its parent lives
COPIES: set[ForkedCopy] = set()  # that live


class Ended(Exception):
    """A copy ended before it gave a result."""


class ForkedCopy:
    """A copy of this process that calls `function`, one call after the other. It must be made in
    the thread of the first call: that is the copy's main thread.

    Args:
        name: how messages call the function.
        file: where it is written, for the lines of its errors.
    """

    def __init__(self, function: Callable[..., Any], name: str, file: str) -> None:
        ours, theirs = Pipe()
        for stream in (sys.stdout, sys.stderr):
            with suppress(AttributeError, OSError, ValueError):  # one that is closed, or None
                stream.flush()
        parent = os.getpid()
        self.process = os.fork()
        if not self.process:
            try:
                for copy in COPIES:
                    copy.connection.close()  # else those would not notice their parent's end
                ours.close()
                _serve(function, name, file, theirs, parent)
            finally:
                os._exit(0)
        theirs.close()
        self.connection = ours
        COPIES.add(self)

    def call(self, arguments: Arguments) -> Any:
        """What the function returns, with tensors as arrays.

        Raises:
            UserError: what the function raised, with its line.
            Fault: the function raised it.
            Ended: the copy ended.
        """
        try:
            self.connection.send(arguments)
            value, error = self.connection.recv()
        except (EOFError, OSError) as gone:
            raise Ended from gone
        if error is not None:
            raise error
        return value

    def end(self) -> None:
        COPIES.discard(self)
        with suppress(OSError):
            os.kill(self.process, signal.SIGKILL)
        with suppress(OSError):
            os.waitpid(self.process, 0)


@atexit.register
def end_copies() -> None:
    for copy in list(COPIES):
        copy.end()


def _serve(
    function: Callable[..., Any], name: str, file: str, calls: Connection, parent: int
) -> None:
    _leave_parents_signals()
    COPIES.clear()
    threading.Thread(target=_end_with, args=(parent,), daemon=True).start()
    if torch := sys.modules.get("torch"):
        torch.set_num_threads(1)  # the threads of a forked OpenMP are not there
    loop = asyncio.new_event_loop()
    while True:
        asyncio.set_event_loop(loop)
        try:
            places, names = calls.recv()
        except (EOFError, OSError):
            return
        try:
            value = function(*places, **names)
            if inspect.isawaitable(value):
                value = loop.run_until_complete(_await(value))
            answer = (portable(value), None)
        except (Fault, UserError) as error:
            answer = (None, error)
        except (Exception, SystemExit) as error:
            where = locate_error(error, file)
            answer = (None, UserError(f"{where} (in {name.rpartition(':')[2]})"))
        calls.send(answer)


async def _await(awaitable: Any) -> Any:
    return await awaitable


def _leave_parents_signals() -> None:
    """The parent ends its copies: what a terminal says to all processes is for it."""
    signal.set_wakeup_fd(-1)  # the parent's event loop reads the other end
    for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGPIPE, signal.SIGALRM):
        signal.signal(number, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.SIG_IGN)


def _end_with(parent: int) -> None:
    while os.getppid() == parent:
        time.sleep(LOOK_EVERY)
    os._exit(0)


def portable(value: Any) -> Any:
    """What a function returned as values that travel between processes: tensors as arrays."""
    if isinstance(value, Mapping):
        return {k: portable(v) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return [portable(x) for x in value]
    if type(value).__module__.partition(".")[0] == "torch" and hasattr(value, "tolist"):
        import numpy as np

        return np.asarray(value.tolist())
    return value
