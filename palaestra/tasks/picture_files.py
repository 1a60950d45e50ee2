"""One picture of a user's data, in the forms that others keep: paths, bytes, URLs, images of Pillow."""

from __future__ import annotations

import base64
import binascii
import io
import math
import re
import warnings
from collections.abc import Generator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import numpy as np
from PIL import Image, ImageOps, UnidentifiedImageError

from palaestra.errors import UserError
from palaestra.pictures import Picture
from palaestra.suggest import suggestion
from palaestra.tasks.records import describe_value

LOCAL = re.compile(r"file://(?:localhost(?=/))?", re.IGNORECASE)  # before the path of a URL
COMMON = (".png", ".jpg", ".jpeg", ".webp")
ENDINGS = (
    *COMMON, ".apng", ".avif", ".bmp", ".dib", ".gif", ".heic", ".heif", ".ico", ".j2k", ".jfif",
    ".jp2", ".jpe", ".jpx", ".jxl", ".pbm", ".pcx", ".pgm", ".pnm", ".ppm", ".qoi", ".svg", ".tga",
    ".tif", ".tiff",
)  # fmt: skip
# how files of PNG, JPEG, GIF, WebP and TIFF begin in base64
IN_BASE64 = re.compile(
    r"(?:iVBORw0KGgo|/9j/|R0lGOD|UklGR|SUkqA|TU0AK)[A-Za-z0-9+/\s]{40,}={0,2}\s*"
)
MOST_PIXELS = 1_000_000  # of a picture; larger ones are made smaller
BITS_PER_SAMPLE = 258  # the tag of a TIFF
HELD = 32  # pictures that are kept after they were read


@dataclass(frozen=True)
class MediaLimits:
    """The most of each medium that is kept of a user's data.

    Args:
        pixels: of a picture, which is made smaller; 0 = MOST_PIXELS.
        frames: of a video, taken at equal distances; 0 = MOST_FRAMES.
        seconds: of a sound, whose end is cut off; 0 = one of more than LONGEST is refused.
    """

    pixels: int = 0
    frames: int = 0
    seconds: float = 0.0


def is_data_url(text: str) -> bool:
    return text[:5].casefold() == "data:"


def is_file(path: Path) -> bool:
    try:
        return path.is_file()
    except OSError:  # its name is too long
        return False


def plain_text(value: Any, where: str, noun: str) -> str:
    """The text of a path or URL. Raises UserError for something else, and for a URL of the net."""
    if not isinstance(value, str) or not value.strip():
        raise UserError(
            f"{where} is {describe_value(value)}; write the path of a {noun}, beside the file of the "
            "record"
        )
    text = value.strip()
    if "://" in text[:16] and not LOCAL.match(text):
        raise UserError(
            f"{where} is the URL {text[:60]!r}, and nothing is fetched from the net; download the "
            f"{noun} and write its path"
        )
    return text


def read_picture(value: Any, where: str, folder: Path, most: int = 0) -> Picture:
    """One picture in any of the forms above. Raises UserError."""
    if isinstance(value, Picture):
        return value
    if isinstance(value, Mapping):  # of data sets
        if value.get("bytes") is not None:
            value = value["bytes"]
        elif value.get("path"):
            value = value["path"]
    if isinstance(value, Image.Image):
        with explain(where):
            return from_pillow(value, most)
    if isinstance(value, bytes | bytearray):
        return _decode(bytes(value), where, most)
    text = plain_text(value, where, "picture")
    if is_data_url(text):
        return _decode(unpack_picture(text, where), where, most)
    if IN_BASE64.fullmatch(text):
        raise UserError(
            f"{where} is a picture in base64, {text[:20]!r}...; write data:image/png;base64,... before "
            "it"
        )
    path = find_file(text, where, folder, "picture")
    with explain(f"{where}: {path}"):
        stat = path.stat()
        return _from_file(path, stat.st_mtime_ns, stat.st_size, most)


def local_path(text: str) -> str:
    """A path, also of a file:// URL."""
    return unquote(LOCAL.sub("", text)) if LOCAL.match(text) else text


def find_file(text: str, where: str, folder: Path, noun: str) -> Path:
    """The file of a path or a file:// URL. Raises UserError where there is none."""
    text = local_path(text)
    try:
        path = folder / Path(text).expanduser()
    except RuntimeError:  # there is no such user
        path = folder / text
    if is_file(path):
        return path
    near = ""
    with suppress(OSError):  # its name is too long, or the folder may not be read
        if path.is_dir():
            raise UserError(f"{where}: {str(path)!r} is a folder; write the path of a {noun}")
        names = [p.name for p in path.parent.iterdir()] if path.parent.is_dir() else []
        near = suggestion(path.name, names)
    raise UserError(
        f"{where}: no {noun} {str(path)[:200]!r}{near}; paths begin at the folder of the record's file"
    )


@lru_cache(HELD)
def _from_file(path: Path, changed: int, size: int, most: int) -> Picture:
    return from_pillow(Image.open(io.BytesIO(path.read_bytes())), most)


def unpack_picture(url: str, where: str) -> bytes:
    head, comma, body = url.partition(",")
    try:
        if not comma or not head.casefold().endswith(";base64"):
            raise ValueError
        return base64.b64decode(body, validate=True)
    except (ValueError, binascii.Error):
        raise UserError(
            f"{where}: {url[:40]!r}... is no picture in base64; write data:image/png;base64,..."
        ) from None


def _decode(data: bytes, where: str, most: int) -> Picture:
    with explain(where):
        return from_pillow(Image.open(io.BytesIO(data)), most)


@contextmanager
def explain(where: str) -> Generator[None]:
    """What Pillow says of a picture that it does not read as a UserError."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error", Image.DecompressionBombWarning)
            yield
    except UnidentifiedImageError:
        raise UserError(
            f"{where} is no picture that Pillow reads; write a PNG or JPEG file"
        ) from None
    except (OSError, ValueError, SyntaxError, Image.DecompressionBombError) as error:
        raise UserError(f"{where} cannot be read: {error}") from None
    except Image.DecompressionBombWarning as error:
        raise UserError(f"{where} is too large: {error}") from None


def from_pillow(image: Image.Image, most: int = 0) -> Picture:
    """Red, green and blue, upright as its EXIF data say, on white where it is transparent; made
    smaller, with its sides in proportion, where it has more than `most` pixels (0 = MOST_PIXELS).

    Raises ValueError for numbers of which nobody knows which is white.
    """
    if not image.width * image.height:
        raise ValueError(f"it has no pixels ({image.width} x {image.height})")
    white = _white(image)
    image = ImageOps.exif_transpose(image)
    if white:
        image = _eight_bits(image, white)
    if "A" in image.getbands() or "transparency" in image.info:
        over = image.convert("RGBA")
        image = Image.new("RGBA", over.size, "white")
        image.alpha_composite(over)
    image = image.convert("RGB")
    most = most or MOST_PIXELS
    share = most / (image.width * image.height)
    if share < 1:  # of a line of pixels one side stays 1
        width, height = (min(most, max(1, math.floor(x * math.sqrt(share)))) for x in image.size)
        image = image.resize((width, height), Image.Resampling.BICUBIC)
    return Picture(shape=(image.height, image.width, 3), data=image.tobytes())


def _white(image: Image.Image) -> int:
    """The number that is white in a picture of one channel and up to 16 bits; 0 = it has 8 bits."""
    # 16 bits of a PGM, and of a PNG in older versions of Pillow
    wide = image.mode == "I" and image.format in ("PPM", "PNG")
    if image.mode.startswith("I;16") or wide:
        bits = getattr(image, "tag_v2", {}).get(BITS_PER_SAMPLE, (16,))[0]
        return 2**bits - 1
    if image.mode in ("I", "F"):
        what = "integers of 32 bits" if image.mode == "I" else "floating-point numbers"
        raise ValueError(f"its pixels are {what}; save it with 8 bits a channel")
    return 0


def _eight_bits(image: Image.Image, white: int) -> Image.Image:
    """v in 0..white as round(255 v / white), of 16 bits v / 257; the number that a PNG calls
    transparent is.
    """
    value_HW = np.asarray(image).astype(np.uint32)
    grey = Image.fromarray(np.minimum((value_HW * 255 + white // 2) // white, 255).astype(np.uint8))
    clear = image.info.get("transparency")
    if clear is None:
        return grey
    return Image.merge("LA", (grey, Image.fromarray((value_HW != clear).astype(np.uint8) * 255)))
