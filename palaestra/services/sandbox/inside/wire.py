"""Frames on a socket or pipe: four bytes of length, then bytes."""

from __future__ import annotations

import os
import struct

MOST = 1 << 28  # bytes of a frame


class Closed(Exception):
    """The other end went away."""


def send(fd: int, data: bytes | memoryview):
    write(fd, struct.pack("<I", len(data)) + data)


def write(fd: int, data: bytes | memoryview):
    while data:
        try:
            data = data[os.write(fd, data) :]
        except (BrokenPipeError, ConnectionResetError):
            raise Closed from None


def receive(fd: int, most: int = MOST):
    (n,) = struct.unpack("<I", read_exactly(fd, 4))
    if n > most:
        raise Closed
    return read_exactly(fd, n)


def read_exactly(fd: int, n: int):
    data = bytearray()
    while len(data) < n:
        try:
            part = os.read(fd, min(n - len(data), 1 << 16))
        except ConnectionResetError:
            part = b""
        if not part:
            raise Closed
        data += part
    return bytes(data)
