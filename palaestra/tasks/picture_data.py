"""Pictures in a user's records: columns `image` and `images`, and parts of messages. Sounds stand
beside them in the same ways; how one is read is in `sound_data`.

    {"image": "photos/1.png", "prompt": "How many apples?", "answer": 3}
    {"images": ["a.png", "b.png"], "prompt": "Is <image> brighter than <image>?", "answer": "no"}
    {"messages": [{"role": "user", "content": [{"type": "image", "image": "a.png"}, {"type": "text", "text": "..."}]}]}

A picture is a path (relative to the record's file), bytes of a file, {"bytes": ..., "path": ...} as
data sets of the hub have it, an image of Pillow, or a data: URL. Nothing is fetched from the net. A
text in `image` that neither ends as a picture's file does nor names a file, also without its
ending, is no picture.
Pictures of columns stand where messages have parts {"type": "image"} that name none; else where the
text has `<image>`, if it is there once for each; else before the first message of the user, pictures
first.
"""

from __future__ import annotations

import base64
import binascii
import io
import math
import re
import warnings
from collections.abc import Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import numpy as np
from PIL import Image, ImageOps, UnidentifiedImageError

from palaestra.errors import UserError
from palaestra.pictures import PICTURE_MARK, Picture
from palaestra.sounds import Sound
from palaestra.suggest import suggestion
from palaestra.tasks.records import Joined, Record, Records, describe_value
from palaestra.tasks.sound_data import (
    SOUND_COLUMNS,
    SOUND_ENDINGS,
    SOUND_MARK,
    SOUND_PARTS,
    WAV,
    of_array,
    read_wav,
    sound_file,
    sound_part,
    unpack_sound,
)
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


@dataclass(frozen=True)
class MediumForm:
    """How media of a kind stand in records."""

    noun: str
    columns: tuple[str, str]  # of one, and of several
    parts: tuple[str, ...]  # types of parts of messages
    mark: str  # in a text
    endings: tuple[str, ...]  # of files that a text can only mean
    tried: tuple[str, ...]  # endings without which a file may be named
    example: str


PICTURE_FORM = MediumForm("picture", PICTURE_COLUMNS, PARTS, PLACEHOLDER, ENDINGS, COMMON, "a.png")
SOUND_FORM = MediumForm(
    "sound", SOUND_COLUMNS, SOUND_PARTS, SOUND_MARK, SOUND_ENDINGS, WAV, "a.wav"
)
FORMS = (PICTURE_FORM, SOUND_FORM)


def folder_of(records: Records, index: int) -> Path:
    """Where paths of a record begin: the folder of its file, the working folder where it has none."""
    own = records.part_of(index) if isinstance(records, Joined) else records
    path = Path(str(own.path))
    if path.is_dir():
        return path
    return path.parent if path.is_file() else Path()


def read_pictures(record: Record, where: str, folder: Path, most: int = 0) -> Record:
    """The record with its pictures and sounds read, in columns and in parts of messages; as it is
    where there are none.

    Args:
        folder: where paths begin.
        most: pixels of a picture; larger ones are made smaller. 0 = MOST_PIXELS.
    """
    read = dict[str, Any]()
    gone = set[str]()
    for form in FORMS:
        if named := [k for k in form.columns if _holds_media(record.get(k), folder, form)]:
            if len(named) > 1:
                raise UserError(f"{where}: both {' and '.join(map(repr, named))}; keep one")
            (name,) = named
            value = record[name]
            several = value if isinstance(value, list | tuple) else [value]
            media = (_read_medium(v, f"{where}: {name}", folder, most, form) for v in several)
            read[READ] = (*read.get(READ, ()), *media)
            gone |= set(form.columns)
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
    nameless = next((f for p in parts if (f := _form_of(p)) and p["picture"] is None), None)
    if nameless and not gone & set(nameless.columns):
        one, several = nameless.columns
        kind = nameless.parts[0]
        raise UserError(
            f"{where}: a part of a message is a {nameless.noun} without a file, and there is no column "
            f'{one!r} or {several!r}; write {{"type": "{kind}", "{kind}": "{nameless.example}"}}'
        )
    return {k: v for k, v in record.items() if k not in gone} | read


def is_form(medium: Picture, form: MediumForm) -> bool:
    """Whether a medium is of this kind."""
    return isinstance(medium, Sound) == (form is SOUND_FORM)


def _holds_media(value: Any, folder: Path, form: MediumForm) -> bool:
    if value is None or (isinstance(value, list | tuple) and not value):
        return False
    if not isinstance(value, str):
        return True
    text = value.strip()
    if not text:
        return False
    if "://" in text[:16] or _is_data_url(text) or IN_BASE64.fullmatch(text):
        return True
    return text.casefold().endswith(form.endings) or any(
        _is_file(folder / f"{text}{ending}") for ending in ("", *form.tried)
    )


def _is_data_url(text: str) -> bool:
    return text[:5].casefold() == "data:"


def _is_file(path: Path) -> bool:
    try:
        return path.is_file()
    except OSError:  # its name is too long
        return False


def _form_of(part: Any) -> MediumForm | None:
    """The form of the medium that a part of a message is; None = it is none."""
    kind = part.get("type") if isinstance(part, Mapping) else None
    return next((f for f in FORMS if kind in f.parts), None)


def _has_pictures(message: Any) -> bool:
    content = message.get("content") if isinstance(message, Mapping) else None
    return isinstance(content, list) and any(map(_form_of, content))


def _with_parts(message: Any, where: str, folder: Path, most: int) -> Any:
    """The message with the pictures of its parts under "picture", None where a part names none."""
    if not _has_pictures(message):
        return message
    parts = list[Any]()
    for i, part in enumerate(message["content"]):
        form = _form_of(part)
        if form is None:
            parts.append(part)
            continue
        field = f"{where}.content[{i}]"
        value = _picture_part(part) if form is PICTURE_FORM else sound_part(part)
        picture = None if value is None else _read_medium(value, field, folder, most, form)
        parts.append({"type": form.parts[0], "picture": picture})
    return {**message, "content": parts}


def _picture_part(part: Mapping[str, Any]) -> Any:
    """What a part of a message says of its picture; None = nothing."""
    names = ("image", "image_url", "url", "path", "base64")
    value = next((part[k] for k in names if part.get(k) is not None), None)
    if isinstance(value, Mapping) and "url" in value:
        value = value["url"]
    if part.get("base64") is value and isinstance(value, str):
        value = f"data:image;base64,{value}"
    return value


def split_content(content: Any) -> tuple[Any, tuple[Picture | str, ...]]:
    """A content with U+FFFC in the place of media that `read_pictures` read, and these, or the mark
    of those that name no file; as it is where it is no list with such.
    """
    if not (isinstance(content, list) and any(map(_form_of, content))):
        return content, ()
    parts = [{"type": "text", "text": PICTURE_MARK} if _form_of(p) else p for p in content]
    return parts, tuple(p["picture"] or f.mark for p in content if (f := _form_of(p)))


def with_pictures(
    content: str, pictures: Sequence[Picture | str], role: str, where: str
) -> Message:
    """A message of parts. Where all name their pictures it has these; where none does, `place_pictures`
    puts those of the columns at their places. Raises UserError for a mixture, and for the assistant.
    """
    if not pictures:
        return Message(role=role, content=content)
    if role == "assistant":
        raise UserError(
            f"{where} is the assistant's and has a picture or a sound; it writes text alone"
        )
    if content.count(PICTURE_MARK) != len(pictures):
        raise UserError(
            f"{where}: the text has the character U+FFFC, which stands for a picture; leave it out"
        )
    known = tuple(p for p in pictures if isinstance(p, Picture))
    if not known:
        first, *rest = content.split(PICTURE_MARK)
        marked = (f"{mark}{text}" for mark, text in zip(pictures, rest, strict=True))
        return Message(role=role, content=first + "".join(marked))
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
    of_form = {f: [p for p in mine if is_form(p, f)] for f in FORMS}
    marked = {f: text.count(f.mark) for f, media in of_form.items() if media}
    for form, n in marked.items():
        if n and n != len(of_form[form]):
            raise UserError(
                f"{where}: {form.noun}s in a column: {len(of_form[form])}, and places for them: {n} (each "
                f"{form.mark} in a text, each part {{'type': {form.parts[0]!r}}} without a file); write "
                f"one place for each {form.noun}, or none"
            )
    in_text = {f.mark: iter(of_form[f]) for f, n in marked.items() if n}
    placed = tuple(_placed(m, in_text) for m in prompt) if in_text else tuple(prompt)
    if not (before := [p for f, n in marked.items() if not n for p in of_form[f]]):
        return placed
    first = next((i for i, m in enumerate(placed) if m.role == "user"), None)
    if first is None:
        raise UserError(f"{where}: there is no message of the user for its pictures")
    content = PICTURE_MARK * len(before) + placed[first].content
    shown = replace(placed[first], content=content, pictures=(*before, *placed[first].pictures))
    return (*placed[:first], shown, *placed[first + 1 :])


def _placed(message: Message, in_text: Mapping[str, Iterator[Picture]]) -> Message:
    """The message with the next media in the place of each mark."""
    marks = re.compile("|".join(map(re.escape, in_text)))
    shown = tuple(next(in_text[m[0]]) for m in marks.finditer(message.content))
    return replace(message, content=marks.sub(PICTURE_MARK, message.content), pictures=shown)


def _read_medium(value: Any, where: str, folder: Path, most: int, form: MediumForm) -> Picture:
    return (
        read_picture(value, where, folder, most)
        if form is PICTURE_FORM
        else read_sound(value, where, folder)
    )


def read_sound(value: Any, where: str, folder: Path) -> Sound:
    """One sound in any of the forms of `sound_data`. Raises UserError."""
    if isinstance(value, Sound):
        return value
    if isinstance(value, Mapping):  # of data sets
        if value.get("array") is not None:
            return of_array(value, where)
        value = value.get("bytes") or value.get("path")
    if isinstance(value, bytes | bytearray):
        return read_wav(bytes(value), where)
    text = _plain_text(value, where, "sound")
    if _is_data_url(text):
        return read_wav(unpack_sound(text, where), where)
    if IN_BASE64.fullmatch(text):
        raise UserError(
            f"{where} is a sound in base64, {text[:20]!r}...; write data:audio/wav;base64,... before it"
        )
    path = _find(text, where, folder, "sound")
    with _explain(f"{where}: {path}"):
        stat = path.stat()
        return sound_file(path, stat.st_mtime_ns, stat.st_size)


def _plain_text(value: Any, where: str, noun: str) -> str:
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
        with _explain(where):
            return from_pillow(value, most)
    if isinstance(value, bytes | bytearray):
        return _decode(bytes(value), where, most)
    text = _plain_text(value, where, "picture")
    if _is_data_url(text):
        return _decode(_unpack(text, where), where, most)
    if IN_BASE64.fullmatch(text):
        raise UserError(
            f"{where} is a picture in base64, {text[:20]!r}...; write data:image/png;base64,... before "
            "it"
        )
    path = _find(text, where, folder, "picture")
    with _explain(f"{where}: {path}"):
        stat = path.stat()
        return _from_file(path, stat.st_mtime_ns, stat.st_size, most)


def _find(text: str, where: str, folder: Path, noun: str) -> Path:
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
            raise UserError(f"{where}: {str(path)!r} is a folder; write the path of a {noun}")
        names = [p.name for p in path.parent.iterdir()] if path.parent.is_dir() else []
        near = suggestion(path.name, names)
    raise UserError(
        f"{where}: no {noun} {str(path)[:200]!r}{near}; paths begin at the folder of the record's file"
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
