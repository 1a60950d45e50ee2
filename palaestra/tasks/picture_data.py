"""Pictures and videos in a user's records: columns `image` and `images`, `video` and `videos`, and
parts of messages.

    {"image": "photos/1.png", "prompt": "How many apples?", "answer": 3}
    {"images": ["a.png", "b.png"], "prompt": "Is <image> brighter than <image>?", "answer": "no"}
    {"messages": [{"role": "user", "content": [{"type": "image", "image": "a.png"}, {"type": "text", "text": "..."}]}]}
    {"video": "clips/1.gif", "image": "now.png", "prompt": "What is next?", "answer": "stir"}

A picture is a path (relative to the record's file), bytes of a file, {"bytes": ..., "path": ...} as
data sets of the hub have it, an image of Pillow, or a data: URL. Nothing is fetched from the net. A
text in `image` that neither ends as a picture's file does nor names a file, also without its
ending, is no picture.
Pictures of columns stand where messages have parts {"type": "image"} that name none; else where the
text has `<image>`, if it is there once for each; else before the first message of the user.

A video is an animated file, a folder of frames, or a list of pictures; see `palaestra.tasks.video_data`.
Some of its frames become pictures of the prompt. In a text it stands at `<video>`, else before the
pictures of columns.
"""

from __future__ import annotations

import base64
import binascii
import io
import math
import re
import warnings
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
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
from palaestra.tasks.video_data import (
    ANIMATED,
    CONTAINERS,
    MOST_FRAMES,
    VIDEO_COLUMNS,
    VIDEO_PARTS,
    VIDEO_PLACEHOLDER,
    decode_frames,
    frame_places,
    frames_in_folder,
)
from palaestra.types import Message

PICTURE_COLUMNS = ("image", "images")
LOCAL = re.compile(r"file://(?:localhost(?=/))?", re.IGNORECASE)  # before the path of a URL
READ = "<pictures>"  # where a record that was read has them
CLIPS = "<clips>"  # and the frames of its videos
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
HELD, HELD_CLIPS = 32, 4  # pictures, and videos, that are kept after they were read


def folder_of(records: Records, index: int) -> Path:
    """Where paths of a record begin: the folder of its file, the working folder where it has none."""
    own = records.part_of(index) if isinstance(records, Joined) else records
    path = Path(str(own.path))
    if path.is_dir():
        return path
    return path.parent if path.is_file() else Path()


def read_pictures(
    record: Record, where: str, folder: Path, most: int = 0, frames: int = 0
) -> Record:
    """The record with its pictures and the frames of its videos read, in columns and in parts of
    messages; as it is where there are none.

    Args:
        folder: where paths begin.
        most: pixels of a picture; larger ones are made smaller. 0 = MOST_PIXELS.
        frames: of a video; 0 = MOST_FRAMES.
    """
    read, names = dict[str, Any](), dict[str, tuple[str, ...]]()
    if name := _column(record, PICTURE_COLUMNS, _holds_pictures, where, folder):
        value = record[name]
        several = value if isinstance(value, list | tuple) else [value]
        read[READ] = tuple(read_picture(v, f"{where}: {name}", folder, most) for v in several)
        names[READ] = PICTURE_COLUMNS
    if name := _column(record, VIDEO_COLUMNS, _holds_video, where, folder):
        value = record[name]
        several = value if name == "videos" and isinstance(value, list | tuple) else [value]
        read[CLIPS] = tuple(
            read_video(v, f"{where}: {name}", folder, most, frames) for v in several
        )
        names[CLIPS] = VIDEO_COLUMNS
    for field in ("messages", "prompt"):
        talk = record.get(field)
        if isinstance(talk, list) and any(_has_pictures(m) for m in talk):
            read[field] = [
                _with_parts(m, f"{where}: {field}[{i}]", folder, most, frames)
                for i, m in enumerate(talk)
            ]
    if not read:
        return record
    _check_bare(read, where)
    gone = {k for columns in names.values() for k in columns}
    return {k: v for k, v in record.items() if k not in gone} | read


def _column(
    record: Record,
    columns: Sequence[str],
    holds: Callable[[Any, Path], bool],
    where: str,
    folder: Path,
) -> str:
    """The one of two columns that holds something; "" = neither. Raises UserError where both do."""
    named = [k for k in columns if holds(record.get(k), folder)]
    if len(named) > 1:
        raise UserError(f"{where}: both {' and '.join(map(repr, columns))}; keep one")
    return named[0] if named else ""


def _check_bare(read: Record, where: str) -> None:
    """Raises UserError where a part names no file, and there is no column that would."""
    parts = [
        p
        for f in ("messages", "prompt")
        for m in read.get(f, ())
        if _has_pictures(m)
        for p in m["content"]
    ]
    for key, types, what, columns, example in (
        (READ, PARTS, "picture", PICTURE_COLUMNS, '{"type": "image", "image": "a.png"}'),
        (CLIPS, VIDEO_PARTS, "video", VIDEO_COLUMNS, '{"type": "video", "video": "a.gif"}'),
    ):
        if key not in read and any(_is_part(p, types) and p["picture"] is None for p in parts):
            raise UserError(
                f"{where}: a part of a message is a {what} without a file, and there is no column "
                f"{' or '.join(map(repr, columns))}; write {example}"
            )


def _holds_pictures(value: Any, folder: Path) -> bool:
    exists = lambda text: any(_is_file(folder / f"{text}{ending}") for ending in ("", *COMMON))
    return _holds(value, ENDINGS, exists)


def _holds_video(value: Any, folder: Path) -> bool:
    exists = lambda text: _is_file(folder / text) or _is_folder(folder / text)
    return _holds(value, (*ANIMATED, *CONTAINERS), exists)


def _holds(value: Any, endings: tuple[str, ...], exists: Callable[[str], bool]) -> bool:
    """Whether a column's value is meant as a file. A text is if it ends so, or names one."""
    if value is None or (isinstance(value, list | tuple) and not value):
        return False
    if not isinstance(value, str):
        return True
    text = value.strip()
    if not text:
        return False
    if "://" in text[:16] or _is_data_url(text) or IN_BASE64.fullmatch(text):
        return True
    return text.casefold().endswith(endings) or exists(text)


def _is_data_url(text: str) -> bool:
    return text[:5].casefold() == "data:"


def _is_file(path: Path) -> bool:
    try:
        return path.is_file()
    except OSError:  # its name is too long
        return False


def _is_folder(path: Path) -> bool:
    try:
        return path.is_dir()
    except OSError:
        return False


def _is_part(part: Any, types: Sequence[str]) -> bool:
    return isinstance(part, Mapping) and part.get("type") in types


def _is_picture(part: Any) -> bool:
    return _is_part(part, (*PARTS, *VIDEO_PARTS))


def _has_pictures(message: Any) -> bool:
    content = message.get("content") if isinstance(message, Mapping) else None
    return isinstance(content, list) and any(map(_is_picture, content))


def _with_parts(message: Any, where: str, folder: Path, most: int, frames: int) -> Any:
    """The message with the pictures of its parts under "picture", None where a part names none. A
    video is a part for each of its frames.
    """
    if not _has_pictures(message):
        return message
    parts = list[Any]()
    for i, part in enumerate(message["content"]):
        field = f"{where}.content[{i}]"
        if _is_part(part, VIDEO_PARTS):
            value = _named(part, ("video", "video_url", "url", "path"))
            clip = (None,) if value is None else read_video(value, field, folder, most, frames)
            parts += [{"type": "video", "picture": p} for p in clip]
        elif _is_part(part, PARTS):
            value = _named(part, ("image", "image_url", "url", "path", "base64"))
            if part.get("base64") is value and isinstance(value, str):
                value = f"data:image;base64,{value}"
            picture = None if value is None else read_picture(value, field, folder, most)
            parts.append({"type": "image", "picture": picture})
        else:
            parts.append(part)
    return {**message, "content": parts}


def _named(part: Mapping[str, Any], names: Sequence[str]) -> Any:
    """What a part names, in one of the forms that others write; None = nothing."""
    value = next((part[k] for k in names if part.get(k) is not None), None)
    return value["url"] if isinstance(value, Mapping) and "url" in value else value


def split_content(content: Any) -> tuple[Any, tuple[Picture | None, ...]]:
    """A content with U+FFFC in the place of pictures that `read_pictures` read, and these; as it is
    where it is no list with such. A video without a file is `<video>`.
    """
    if not (isinstance(content, list) and any(map(_is_picture, content))):
        return content, ()
    parts, pictures = list[Any](), list[Picture | None]()
    for p in content:
        if _is_part(p, VIDEO_PARTS) and p["picture"] is None:
            parts.append({"type": "text", "text": VIDEO_PLACEHOLDER})
        elif _is_picture(p):
            parts.append({"type": "text", "text": PICTURE_MARK})
            pictures.append(p["picture"])
        else:
            parts.append(p)
    return parts, tuple(pictures)


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
    """The messages with the pictures of the record's columns, and the frames of its videos."""
    kinds = {
        VIDEO_PLACEHOLDER: tuple(record.get(CLIPS, ())),
        PLACEHOLDER: tuple((p,) for p in record.get(READ, ())),
    }
    if not any(kinds.values()):
        return tuple(prompt)
    if any(m.pictures for m in prompt):
        raise UserError(f"{where}: pictures in messages and in a column; keep one")
    text = "\n".join(m.content for m in prompt)
    if PICTURE_MARK in text:
        raise UserError(
            f"{where}: the text has the character U+FFFC, which stands for a picture; leave it out"
        )
    placed = {mark: mine for mark, mine in kinds.items() if mine and mark in text}
    for mark, mine in placed.items():
        _check_places(mark, len(mine), text.count(mark), where)
    rest = {mark: iter(mine) for mark, mine in placed.items()}
    marks = re.compile("|".join(map(re.escape, placed)) or "(?!)")
    messages = [_fill(m, marks, rest) for m in prompt]
    before = tuple(p for k, mine in kinds.items() if k not in placed for some in mine for p in some)
    if not before:
        return tuple(messages)
    first = next((i for i, m in enumerate(messages) if m.role == "user"), None)
    if first is None:
        raise UserError(f"{where}: there is no message of the user for its pictures")
    asked = messages[first]
    messages[first] = replace(
        asked,
        content=PICTURE_MARK * len(before) + asked.content,
        pictures=(*before, *asked.pictures),
    )
    return tuple(messages)


def _check_places(mark: str, there: int, places: int, where: str) -> None:
    if there != places:
        what, kind = ("videos", "video") if mark == VIDEO_PLACEHOLDER else ("pictures", "image")
        raise UserError(
            f"{where}: {what} in a column: {there}, and places for them: {places} (each {mark} in a "
            f"text, each part {{'type': {kind!r}}} without a file); write one place for each "
            f"{'video' if kind == 'video' else 'picture'}, or none"
        )


def _fill(
    message: Message,
    marks: re.Pattern[str],
    rest: Mapping[str, Iterator[tuple[Picture, ...]]],
) -> Message:
    """A message with the next pictures at its placeholders."""
    pictures = list[Picture]()

    def place(match: re.Match[str]) -> str:
        some = next(rest[match[0]])
        pictures.extend(some)
        return PICTURE_MARK * len(some)

    content = marks.sub(place, message.content)
    return replace(message, content=content, pictures=tuple(pictures)) if pictures else message


def read_video(
    value: Any, where: str, folder: Path, most: int = 0, frames: int = 0
) -> tuple[Picture, ...]:
    """The frames of one video that a model is shown, in any of the forms above. Raises UserError."""
    n = frames or MOST_FRAMES
    if isinstance(value, Mapping):  # of data sets
        value = value.get("bytes") or value.get("path")
    if isinstance(value, list | tuple):
        if not value:
            raise UserError(f"{where} is an empty list; a video has one frame or more")
        chosen = [value[i] for i in frame_places(len(value), n)]
        return tuple(read_picture(v, where, folder, most) for v in chosen)
    if isinstance(value, bytes | bytearray):
        return _from_frames(bytes(value), where, most, n)
    if not isinstance(value, str) or not value.strip():
        raise UserError(
            f"{where} is {describe_value(value)}; write the path of an animated file or of a folder of "
            "frames, or a list of pictures"
        )
    text = value.strip()
    if _is_data_url(text):
        return _from_frames(_unpack(text, where), where, most, n)
    if "://" in text[:16] and not LOCAL.match(text):
        raise UserError(
            f"{where} is the URL {text[:60]!r}, and nothing is fetched from the net; download the "
            "video and write its path"
        )
    local = unquote(LOCAL.sub("", text)) if LOCAL.match(text) else text
    if _is_folder(inside := folder / local):
        files = frames_in_folder(inside, ENDINGS, n, where)
        return tuple(read_picture(str(p.resolve()), where, folder, most) for p in files)
    path = _find(text, where, folder, "video")
    with _explain(f"{where}: {path}"):
        stat = path.stat()
        return _from_video(path, stat.st_mtime_ns, stat.st_size, most, n)


@lru_cache(HELD_CLIPS)
def _from_video(path: Path, changed: int, size: int, most: int, n: int) -> tuple[Picture, ...]:
    return tuple(from_pillow(x, most) for x in decode_frames(path.read_bytes(), n, str(path)))


def _from_frames(data: bytes, where: str, most: int, n: int) -> tuple[Picture, ...]:
    with _explain(where):
        return tuple(from_pillow(x, most) for x in decode_frames(data, n, where))


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


def _find(text: str, where: str, folder: Path, what: str = "picture") -> Path:
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
            raise UserError(f"{where}: {str(path)!r} is a folder; write the path of a {what}")
        names = [p.name for p in path.parent.iterdir()] if path.parent.is_dir() else []
        near = suggestion(path.name, names)
    raise UserError(
        f"{where}: no {what} {str(path)[:200]!r}{near}; paths begin at the folder of the record's file"
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
