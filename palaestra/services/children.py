"""What the children that multiprocessing starts find of their parent."""

from __future__ import annotations

import contextlib
import sys
import threading
from collections.abc import Generator
from types import ModuleType

_main = threading.Lock()


@contextlib.contextmanager
def empty_main() -> Generator[None]:
    """A child runs the main module of its parent again, as multiprocessing has it: a script would
    run once more in every process. Within the block the main module is an empty one.
    """
    with _main:
        own = sys.modules["__main__"]
        sys.modules["__main__"] = ModuleType("__main__")
        try:
            yield
        finally:
            sys.modules["__main__"] = own
