"""Pictures of episodes as PNG, for pages."""

from __future__ import annotations

import base64
import struct
import zlib
from collections.abc import Mapping
from typing import Any

COLOUR = {1: 0, 2: 4, 3: 2, 4: 6}  # PNG's colour type by the number of channels


def data_address(picture: Mapping[str, Any]) -> str:
    """A recorded picture (`store.columns.PICTURE`) as "data:image/png;base64,..."; "" where its
    numbers do not make one.
    """
    given = [picture.get(k) for k in ("height", "width", "channels")]
    sizes, data = [n for n in given if isinstance(n, int)], picture.get("data")
    if len(sizes) < len(given) or not isinstance(data, bytes):
        return ""
    height, width, channels = sizes
    if channels not in COLOUR or min(height, width) < 1 or len(data) != height * width * channels:
        return ""
    line = width * channels
    rows = b"".join(b"\0" + data[i * line : (i + 1) * line] for i in range(height))
    head = struct.pack(">IIBBBBB", width, height, 8, COLOUR[channels], 0, 0, 0)
    chunks = ((b"IHDR", head), (b"IDAT", zlib.compress(rows)), (b"IEND", b""))
    png = b"\x89PNG\r\n\x1a\n" + b"".join(map(_chunk, *zip(*chunks, strict=True)))
    return f"data:image/png;base64,{base64.b64encode(png).decode()}"


def _chunk(kind: bytes, data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
