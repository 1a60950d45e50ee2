"""Standard output and error of a program that works for hours: readers go, and terminals are of
many kinds.
"""

from __future__ import annotations

import errno
import io
import os
import sys
from collections.abc import Generator, Iterable
from contextlib import contextmanager, suppress
from typing import Any, TextIO

from palaestra.markdown import escape_controls

GONE = {errno.EPIPE, errno.EIO}  # nobody reads any more: a closed pipe, a terminal that hung up


class Voice(io.TextIOBase):
    """A stream to a person, which never fails: what cannot be written is dropped, and `lost` says
    that nobody listens any more.
    """

    def __init__(self, stream: TextIO):
        self._stream, self.lost = stream, False

    def write(self, text: str, /) -> int:
        self._try(lambda: self._stream.write(text))
        return len(text)

    def writelines(self, lines: Iterable[str], /) -> None:  # pyright: ignore
        self.write("".join(lines))

    def flush(self) -> None:
        self._try(self._stream.flush)

    def _try(self, work: Any) -> None:
        try:
            work()
        except OSError as error:
            self.lost = self.lost or error.errno in GONE

    def isatty(self) -> bool:
        return self._stream.isatty()

    def fileno(self) -> int:
        return self._stream.fileno()

    @property
    def encoding(self) -> str:  # pyright: ignore
        return self._stream.encoding

    @property
    def errors(self) -> str | None:  # pyright: ignore
        return self._stream.errors

    @property
    def buffer(self) -> Any:
        """What libraries write bytes to."""
        return self._stream.buffer


class CleanStream(io.TextIOBase):
    """A stream of text that was not written here: names, answers, what servers say. A terminal must
    not obey it, so control characters are written as their pictures. What draws on the terminal
    itself takes `drawing(stream)`.
    """

    def __init__(self, stream: TextIO):
        self.stream = stream

    def write(self, text: str, /) -> int:
        self.stream.write(escape_controls(text) if isinstance(text, str) else text)
        return len(text)

    def writelines(self, lines: Iterable[str], /) -> None:  # pyright: ignore
        self.write("".join(lines))

    def flush(self) -> None:
        self.stream.flush()

    def isatty(self) -> bool:
        return not self.stream.closed and self.stream.isatty()  # libraries ask at the very end

    def fileno(self) -> int:
        return self.stream.fileno()

    @property
    def encoding(self) -> str:  # pyright: ignore
        return self.stream.encoding

    @property
    def errors(self) -> str | None:  # pyright: ignore
        return self.stream.errors

    @property
    def buffer(self) -> Any:
        """What libraries write bytes to."""
        return self.stream.buffer


def drawing(stream: TextIO) -> TextIO:
    """The stream that takes the control characters of a display of ours."""
    return stream.stream if isinstance(stream, CleanStream) else stream


@contextmanager
def clean_streams() -> Generator[None]:
    """In the block whatever is printed on standard output and error is clean, see `CleanStream`."""
    before = sys.stdout, sys.stderr
    sys.stdout, sys.stderr = (CleanStream(drawing(s)) for s in before)
    try:
        yield
    finally:
        sys.stdout, sys.stderr = before


def is_unheard() -> bool:
    """Whether what is said on standard error has no listener any more."""
    stream = drawing(sys.stderr)
    return isinstance(stream, Voice) and stream.lost


def open_streams() -> None:
    """Makes standard output and error such that whatever a program prints can be printed.

    A character that the terminal's encoding lacks is written as its number. A stream that is closed
    becomes the null device: else a file of the run would be opened in its place.
    """
    for number in (0, 1, 2):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # takes the lowest number that is free
    sys.stdout = sys.stdout or open(os.devnull, "w")  # noqa: SIM115
    sys.stderr = Voice(sys.stderr or open(os.devnull, "w"))  # noqa: SIM115
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")


def silence(stream: TextIO | None) -> None:
    """Sends what is still to come to the null device, so that the interpreter's end has nothing to
    complain of.
    """
    with suppress(OSError, ValueError, AttributeError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())  # pyright: ignore
