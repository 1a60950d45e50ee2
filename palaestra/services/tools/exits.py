"""A tool runs in the run's own process, where `os._exit(0)` would end the run as if it had succeeded,
without a summary. Inside a call it raises SystemExit instead, which is an error of that call.
"""

from __future__ import annotations

import os
import posix
import threading
from collections.abc import Generator
from contextlib import contextmanager
from typing import NoReturn

END_PROCESS = os._exit  # pyright: ignore[reportPrivateUsage]
INSIDE = threading.local()  # in each thread the process whose tools run there, and how many do


@contextmanager
def no_exit() -> Generator[None]:
    """While this is open, `os._exit` in this thread raises SystemExit; in a forked child it ends
    the child.
    """
    INSIDE.process, INSIDE.depth = os.getpid(), getattr(INSIDE, "depth", 0) + 1
    try:
        yield
    finally:
        INSIDE.depth -= 1


def end_process(status: int) -> NoReturn:
    """`os._exit`, unless a tool of this process calls it."""
    if getattr(INSIDE, "depth", 0) and INSIDE.process == os.getpid():
        raise SystemExit(status)
    END_PROCESS(status)


# before the file of a tool is loaded, which may take the function from the module there
os._exit = posix._exit = end_process  # pyright: ignore[reportPrivateUsage]
