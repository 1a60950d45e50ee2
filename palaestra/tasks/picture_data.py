"""Pictures in a user's records: columns `image` and `images`, and parts of messages.

    {"image": "photos/1.png", "prompt": "How many apples?", "answer": 3}
    {"images": ["a.png", "b.png"], "prompt": "Is <image> brighter than <image>?", "answer": "no"}
    {"messages": [{"role": "user", "content": [{"type": "image", "image": "a.png"}, {"type": "text", "text": "..."}]}]}

A picture is a path (relative to the record's file), bytes of a file, {"bytes": ..., "path": ...} as
data sets of the hub have it, an image of Pillow, or a data: URL. Nothing is fetched from the net. A
text in `image` that neither ends as a picture's file does nor names a file, also without its
ending, is no picture.
Pictures of columns stand where messages have parts {"type": "image"} that name none; else where the
text has `<image>`, if it is there once for each; else before the first message of the user.
"""

from __future__ import annotations

import base64
import binascii
import io
import math
import re
import warnings
from collections.abc import Generator, Iterable, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import numpy as np
from PIL import Image, ImageOps, UnidentifiedImageError

from palaestra.errors import UserError
from palaestra.pictures import PICTURE_MARK, Picture
from palaestra.suggest import suggestion
from palaestra.tasks.records import Joined, Record, Records, describe_value
from palaestra.types import Message

PICTURE_COLUMNS = ("image", "images")
LOCAL = re.compile(r"file://(?:localhost(?=/))?", re.IGNORECASE)  # before the path of a URL
READ = "<pictures>"  # where a record that was read has them
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
PLACEHOLDER = "<image>"  # where a picture of a column stands in a text
PARTS = ("image", "image_url", "input_image")  # types of parts that are pictures
MOST_PIXELS = 1_000_000  # of a picture; larger ones are made smaller
BITS_PER_SAMPLE = 258  # the tag of a TIFF
HELD = 32  # pictures that are kept after they were read


def folder_of(records: Records, index: int) -> Path:
    """Where paths of a record begin: the folder of its file, the working folder where it has none."""
    own = records.part_of(index) if isinstance(records, Joined) else records
    path = Path(str(own.path))
    if path.is_dir():
        return path
    return path.parent if path.is_file() else Path()


def read_pictures(record: Record, where: str, folder: Path, most: int = 0) -> Record:
    """The record with its pictures read, in columns and in parts of messages; as it is where there
    are none.

    Args:
        folder: where paths begin.
        most: pixels of a picture; larger ones are made smaller. 0 = MOST_PIXELS.
    """
    read = dict[str, Any]()
    if named := [k for k in PICTURE_COLUMNS if _holds_pictures(record.get(k), folder)]:
        if len(named) > 1:
            raise UserError(f"{where}: both 'image' and 'images'; keep one")
        (name,) = named
        value = record[name]
        several = value if isinstance(value, list | tuple) else [value]
        read[READ] = tuple(read_picture(v, f"{where}: {name}", folder, most) for v in several)
    for field in ("messages", "prompt"):
        talk = record.get(field)
        if isinstance(talk, list) and any(_has_pictures(m) for m in talk):
            read[field] = [
                _with_parts(m, f"{where}: {field}[{i}]", folder, most) for i, m in enumerate(talk)
            ]
    if not read:
        return record
    parts = (
        p
        for f in ("messages", "prompt")
        for m in read.get(f, ())
        if _has_pictures(m)
        for p in m["content"]
    )
    if READ not in read and any(_is_picture(p) and p["picture"] is None for p in parts):
        raise UserError(
            f"{where}: a part of a message is a picture without a file, and there is no column 'image' "
            'or \'images\'; write {"type": "image", "image": "a.png"}'
        )
    return {k: v for k, v in record.items() if k not in PICTURE_COLUMNS or READ not in read} | read


def _holds_pictures(value: Any, folder: Path) -> bool:
    if value is None or (isinstance(value, list | tuple) and not value):
        return False
    if not isinstance(value, str):
        return True
    text = value.strip()
    if not text:
        return False
    if "://" in text[:16] or _is_data_url(text) or IN_BASE64.fullmatch(text):
        return True
    return text.casefold().endswith(ENDINGS) or any(
        _is_file(folder / f"{text}{ending}") for ending in ("", *COMMON)
    )


def _is_data_url(text: str) -> bool:
    return text[:5].casefold() == "data:"


def _is_file(path: Path) -> bool:
    try:
        return path.is_file()
    except OSError:  # its name is too long
        return False


def _is_picture(part: Any) -> bool:
    return isinstance(part, Mapping) and part.get("type") in PARTS


def _has_pictures(message: Any) -> bool:
    content = message.get("content") if isinstance(message, Mapping) else None
    return isinstance(content, list) and any(map(_is_picture, content))


def _with_parts(message: Any, where: str, folder: Path, most: int) -> Any:
    """The message with the pictures of its parts under "picture", None where a part names none."""
    if not _has_pictures(message):
        return message
    parts = list[Any]()
    for i, part in enumerate(message["content"]):
        if not _is_picture(part):
            parts.append(part)
            continue
        field = f"{where}.content[{i}]"
        value = next(
            (
                part[k]
                for k in ("image", "image_url", "url", "path", "base64")
                if part.get(k) is not None
            ),
            None,
        )
        if isinstance(value, Mapping) and "url" in value:
            value = value["url"]
        if part.get("base64") is value and isinstance(value, str):
            value = f"data:image;base64,{value}"
        picture = None if value is None else read_picture(value, field, folder, most)
        parts.append({"type": "image", "picture": picture})
    return {**message, "content": parts}


def split_content(content: Any) -> tuple[Any, tuple[Picture | None, ...]]:
    """A content with U+FFFC in the place of pictures that `read_pictures` read, and these; as it is
    where it is no list with such.
    """
    if not (isinstance(content, list) and any(map(_is_picture, content))):
        return content, ()
    parts = [{"type": "text", "text": PICTURE_MARK} if _is_picture(p) else p for p in content]
    return parts, tuple(p["picture"] for p in content if _is_picture(p))


def with_pictures(
    content: str, pictures: Sequence[Picture | None], role: str, where: str
) -> Message:
    """A message of parts. Where all name their pictures it has these; where none does, `place_pictures`
    puts those of the columns at their places. Raises UserError for a mixture, and for the assistant.
    """
    if not pictures:
        return Message(role=role, content=content)
    if role == "assistant":
        raise UserError(f"{where} is the assistant's and has a picture; it writes text alone")
    if content.count(PICTURE_MARK) != len(pictures):
        raise UserError(
            f"{where}: the text has the character U+FFFC, which stands for a picture; leave it out"
        )
    known = tuple(p for p in pictures if p is not None)
    if not known:
        return Message(role=role, content=content.replace(PICTURE_MARK, PLACEHOLDER))
    if len(known) < len(pictures):
        raise UserError(f"{where} has pictures that name a file and others that do not; name all")
    return Message(role=role, content=content, pictures=known)


def place_pictures(prompt: Sequence[Message], record: Record, where: str) -> tuple[Message, ...]:
    """The messages with the pictures of the record's columns."""
    mine = record.get(READ, ())
    if not mine:
        return tuple(prompt)
    if any(m.pictures for m in prompt):
        raise UserError(f"{where}: pictures in messages and in a column; keep one")
    text = "\n".join(m.content for m in prompt)
    if PICTURE_MARK in text:
        raise UserError(
            f"{where}: the text has the character U+FFFC, which stands for a picture; leave it out"
        )
    if n := text.count(PLACEHOLDER):
        if n != len(mine):
            raise UserError(
                f"{where}: pictures in a column: {len(mine)}, and places for them: {n} (each "
                f"{PLACEHOLDER} in a text, each part {{'type': 'image'}} without a file); write one "
                "place for each picture, or none"
            )
        rest = iter(mine)
        return tuple(
            replace(
                m,
                content=m.content.replace(PLACEHOLDER, PICTURE_MARK),
                pictures=tuple(next(rest) for _ in range(m.content.count(PLACEHOLDER))),
            )
            for m in prompt
        )
    first = next((i for i, m in enumerate(prompt) if m.role == "user"), None)
    if first is None:
        raise UserError(f"{where}: there is no message of the user for its pictures")
    content = PICTURE_MARK * len(mine) + prompt[first].content
    shown = replace(prompt[first], content=content, pictures=tuple(mine))
    return (*prompt[:first], shown, *prompt[first + 1 :])


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
        with _explain(where):
            return from_pillow(value, most)
    if isinstance(value, bytes | bytearray):
        return _decode(bytes(value), where, most)
    if not isinstance(value, str) or not value.strip():
        raise UserError(
            f"{where} is {describe_value(value)}; write the path of a picture, beside the file of the "
            "record"
        )
    text = value.strip()
    if _is_data_url(text):
        return _decode(_unpack(text, where), where, most)
    if IN_BASE64.fullmatch(text):
        raise UserError(
            f"{where} is a picture in base64, {text[:20]!r}...; write data:image/png;base64,... before "
            "it"
        )
    if "://" in text[:16] and not LOCAL.match(text):
        raise UserError(
            f"{where} is the URL {text[:60]!r}, and nothing is fetched from the net; download the "
            "picture and write its path"
        )
    path = _find(text, where, folder)
    with _explain(f"{where}: {path}"):
        stat = path.stat()
        return _from_file(path, stat.st_mtime_ns, stat.st_size, most)


def _find(text: str, where: str, folder: Path) -> Path:
    """The file of a path or a file:// URL. Raises UserError where there is none."""
    if LOCAL.match(text):
        text = unquote(LOCAL.sub("", text))
    try:
        path = folder / Path(text).expanduser()
    except RuntimeError:  # there is no such user
        path = folder / text
    if _is_file(path):
        return path
    near = ""
    with suppress(OSError):  # its name is too long, or the folder may not be read
        if path.is_dir():
            raise UserError(f"{where}: {str(path)!r} is a folder; write the path of a picture")
        names = [p.name for p in path.parent.iterdir()] if path.parent.is_dir() else []
        near = suggestion(path.name, names)
    raise UserError(
        f"{where}: no picture {str(path)[:200]!r}{near}; paths begin at the folder of the record's file"
    )


@lru_cache(HELD)
def _from_file(path: Path, changed: int, size: int, most: int) -> Picture:
    return from_pillow(Image.open(io.BytesIO(path.read_bytes())), most)


def _unpack(url: str, where: str) -> bytes:
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
    with _explain(where):
        return from_pillow(Image.open(io.BytesIO(data)), most)


@contextmanager
def _explain(where: str) -> Generator[None]:
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


def digests(messages: Iterable[Message]) -> tuple[str, ...]:
    """Of the pictures of messages, by which problems of equal words differ."""
    return tuple(f"{p.digest:x}" for m in messages for p in m.pictures)
