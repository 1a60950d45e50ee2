"""A server of the command line that listens, or one line that says why it cannot."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from typing import TypeVar

from palaestra.errors import UserError

Server = TypeVar("Server")
REFUSED = (errno.EADDRINUSE, errno.EACCES, errno.EADDRNOTAVAIL)


def listen(make: Callable[[], Server], port: int) -> Server:
    """The server that `make` opens at a port. Raises UserError where the port cannot be had."""
    try:
        return make()
    except OSError as error:
        if error.errno not in REFUSED:
            raise
        why = os.strerror(error.errno).lower()
        raise UserError(f"--port {port}: {why}; give another one, or 0 for any") from None
