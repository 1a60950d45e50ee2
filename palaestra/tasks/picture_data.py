"""Pictures, videos and sounds in a user's records: columns `image` and `images`, `video` and
`videos`, `audio` and `audios`, and parts of messages.

    {"image": "photos/1.png", "prompt": "How many apples?", "answer": 3}
    {"images": ["a.png", "b.png"], "prompt": "Is <image> brighter than <image>?", "answer": "no"}
    {"messages": [{"role": "user", "content": [{"type": "image", "image": "a.png"}, {"type": "text", "text": "..."}]}]}
    {"video": "clips/1.gif", "image": "now.png", "prompt": "What is next?", "answer": "stir"}

A picture is a path (relative to the record's file), bytes of a file, {"bytes": ..., "path": ...} as
data sets of the hub have it, an image of Pillow, or a data: URL. Nothing is fetched from the net. A
text in `image` that neither ends as a picture's file does nor names a file, also without its
ending, is no picture. What a sound is stands in `sound_data`.
A video is an animated file, a folder of frames, or a list of pictures; see `video_data`. Some of its
frames become pictures of the prompt, and it has one place as a whole.
Media of columns stand where messages have parts such as {"type": "image"} that name none; else where
the text has `<image>`, `<video>` or `<audio>`, if it is there once for each; else before the first
message of the user: videos, pictures, sounds.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from palaestra.errors import UserError
from palaestra.pictures import PICTURE_MARK, Picture
from palaestra.tasks.picture_files import (
    COMMON,
    ENDINGS,
    IN_BASE64,
    MediaLimits,
    is_data_url,
    is_file,
    read_picture,
)
from palaestra.tasks.records import Joined, Record, Records
from palaestra.tasks.sound_data import (
    SOUND_COLUMNS,
    SOUND_ENDINGS,
    SOUND_MARK,
    SOUND_PARTS,
    WAV,
    read_sound,
    sound_part,
)
from palaestra.tasks.video_data import (
    ANIMATED,
    CONTAINERS,
    VIDEO_COLUMNS,
    VIDEO_PARTS,
    VIDEO_PLACEHOLDER,
    is_folder,
    read_video,
)
from palaestra.types import Message

PICTURE_COLUMNS = ("image", "images")
READ = (
    "<media>"  # where a record that was read has them: by noun, a tuple of pictures for each medium
)
PLACEHOLDER = "<image>"  # where a picture of a column stands in a text
PARTS = ("image", "image_url", "input_image")  # types of parts that are pictures


@dataclass(frozen=True)
class MediumForm:
    """How media of a kind stand in records.

    Args:
        columns: of one, and of several.
        parts: types of parts of messages.
        mark: its place in a text.
        endings: of files that a text can only mean.
        tried: endings without which a file may be named.
        folder: whether a folder is one.
        part: what a part of a message says of it; None = nothing.
        read: the pictures that one of them is, of a value, its place, the folder of its record, and
            the limits.
    """

    noun: str
    columns: tuple[str, str]
    parts: tuple[str, ...]
    mark: str
    endings: tuple[str, ...]
    tried: tuple[str, ...]
    example: str
    folder: bool
    part: Callable[[Mapping[str, Any]], Any]
    read: Callable[[Any, str, Path, MediaLimits], tuple[Picture, ...]]


def _named(part: Mapping[str, Any], names: Sequence[str]) -> Any:
    """What a part names, in one of the forms that others write; None = nothing."""
    value = next((part[k] for k in names if part.get(k) is not None), None)
    return value["url"] if isinstance(value, Mapping) and "url" in value else value


def _picture_part(part: Mapping[str, Any]) -> Any:
    value = _named(part, ("image", "image_url", "url", "path", "base64"))
    if part.get("base64") is value and isinstance(value, str):
        value = f"data:image;base64,{value}"
    return value


VIDEO_FORM = MediumForm(
    noun="video",
    columns=VIDEO_COLUMNS,
    parts=VIDEO_PARTS,
    mark=VIDEO_PLACEHOLDER,
    endings=(*ANIMATED, *CONTAINERS),
    tried=(),
    example="a.gif",
    folder=True,
    part=lambda part: _named(part, ("video", "video_url", "url", "path")),
    read=lambda value, where, folder, limits: read_video(
        value, where, folder, limits.pixels, limits.frames
    ),
)
PICTURE_FORM = MediumForm(
    noun="picture",
    columns=PICTURE_COLUMNS,
    parts=PARTS,
    mark=PLACEHOLDER,
    endings=ENDINGS,
    tried=COMMON,
    example="a.png",
    folder=False,
    part=_picture_part,
    read=lambda value, where, folder, limits: (read_picture(value, where, folder, limits.pixels),),
)
SOUND_FORM = MediumForm(
    noun="sound",
    columns=SOUND_COLUMNS,
    parts=SOUND_PARTS,
    mark=SOUND_MARK,
    endings=SOUND_ENDINGS,
    tried=WAV,
    example="a.wav",
    folder=False,
    part=sound_part,
    read=lambda value, where, folder, limits: (read_sound(value, where, folder, limits.seconds),),
)
FORMS = (VIDEO_FORM, PICTURE_FORM, SOUND_FORM)


def folder_of(records: Records, index: int) -> Path:
    """Where paths of a record begin: the folder of its file, the working folder where it has none."""
    own = records.part_of(index) if isinstance(records, Joined) else records
    path = Path(str(own.path))
    if path.is_dir():
        return path
    return path.parent if path.is_file() else Path()


def read_pictures(
    record: Record, where: str, folder: Path, limits: MediaLimits = MediaLimits()
) -> Record:
    """The record with its pictures, sounds and the frames of its videos read, in columns and in parts
    of messages; as it is where there are none.

    Args:
        folder: where paths begin.
        limits: what is made smaller or shorter.
    """
    read, media = dict[str, Any](), dict[str, tuple[tuple[Picture, ...], ...]]()
    gone = set[str]()
    for form in FORMS:
        if name := _column(record, form, where, folder):
            value = record[name]
            one = form.folder and name == form.columns[0]  # a list of frames is one video
            several = value if isinstance(value, list | tuple) and not one else [value]
            at = f"{where}: {name}"
            media[form.noun] = tuple(form.read(v, at, folder, limits) for v in several)
            gone |= set(form.columns)
    if media:
        read[READ] = media
    for field in ("messages", "prompt"):
        talk = record.get(field)
        if isinstance(talk, list) and any(_has_pictures(m) for m in talk):
            read[field] = [
                _with_parts(m, f"{where}: {field}[{i}]", folder, limits) for i, m in enumerate(talk)
            ]
    if not read:
        return record
    _check_bare(read, where)
    return {k: v for k, v in record.items() if k not in gone} | read


def _column(record: Record, form: MediumForm, where: str, folder: Path) -> str:
    """The one of two columns that holds media; "" = neither. Raises UserError where both do."""
    named = [k for k in form.columns if _holds_media(record.get(k), folder, form)]
    if len(named) > 1:
        raise UserError(f"{where}: both {' and '.join(map(repr, named))}; keep one")
    return named[0] if named else ""


def _check_bare(read: Record, where: str) -> None:
    """Raises UserError where a part names no file, and there is no column that would."""
    parts = (
        p
        for f in ("messages", "prompt")
        for m in read.get(f, ())
        if _has_pictures(m)
        for p in m["content"]
    )
    bare = (f for p in parts if (f := _form_of(p)) and p["picture"] is None)
    nameless = next((f for f in bare if f.noun not in read.get(READ, {})), None)
    if nameless:
        one, several = nameless.columns
        kind = nameless.parts[0]
        raise UserError(
            f"{where}: a part of a message is a {nameless.noun} without a file, and there is no column "
            f'{one!r} or {several!r}; write {{"type": "{kind}", "{kind}": "{nameless.example}"}}'
        )


def _holds_media(value: Any, folder: Path, form: MediumForm) -> bool:
    """Whether a column's value is meant as a file. A text is if it ends so, or names one."""
    if value is None or (isinstance(value, list | tuple) and not value):
        return False
    if not isinstance(value, str):
        return True
    text = value.strip()
    if not text:
        return False
    if "://" in text[:16] or is_data_url(text) or IN_BASE64.fullmatch(text):
        return True
    return (
        text.casefold().endswith(form.endings)
        or any(is_file(folder / f"{text}{ending}") for ending in ("", *form.tried))
        or (form.folder and is_folder(folder / text))
    )


def _form_of(part: Any) -> MediumForm | None:
    """The form of the medium that a part of a message is; None = it is none."""
    kind = part.get("type") if isinstance(part, Mapping) else None
    return next((f for f in FORMS if kind in f.parts), None)


def _has_pictures(message: Any) -> bool:
    content = message.get("content") if isinstance(message, Mapping) else None
    return isinstance(content, list) and any(map(_form_of, content))


def _with_parts(message: Any, where: str, folder: Path, limits: MediaLimits) -> Any:
    """The message with the media of its parts under "picture", None where a part names none. A video
    is a part for each of its frames.
    """
    if not _has_pictures(message):
        return message
    parts = list[Any]()
    for i, part in enumerate(message["content"]):
        form = _form_of(part)
        if form is None:
            parts.append(part)
            continue
        value, field = form.part(part), f"{where}.content[{i}]"
        read = (None,) if value is None else form.read(value, field, folder, limits)
        parts += [{"type": form.parts[0], "picture": p} for p in read]
    return {**message, "content": parts}


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
    """The messages with the media of the record's columns."""
    mine = record.get(READ, {})
    if not mine:
        return tuple(prompt)
    if any(m.pictures for m in prompt):
        raise UserError(f"{where}: pictures in messages and in a column; keep one")
    text = "\n".join(m.content for m in prompt)
    if PICTURE_MARK in text:
        raise UserError(
            f"{where}: the text has the character U+FFFC, which stands for a picture; leave it out"
        )
    in_text, before = dict[str, Iterator[tuple[Picture, ...]]](), list[Picture]()
    for form in FORMS:
        media, n = mine.get(form.noun, ()), text.count(form.mark)
        if media and n and n != len(media):
            raise UserError(
                f"{where}: {form.noun}s in a column: {len(media)}, and places for them: {n} (each "
                f"{form.mark} in a text, each part {{'type': {form.parts[0]!r}}} without a file); write "
                f"one place for each {form.noun}, or none"
            )
        if media and n:
            in_text[form.mark] = iter(media)
        else:
            before += [p for some in media for p in some]
    placed = tuple(_placed(m, in_text) for m in prompt) if in_text else tuple(prompt)
    if not before:
        return placed
    first = next((i for i, m in enumerate(placed) if m.role == "user"), None)
    if first is None:
        raise UserError(f"{where}: there is no message of the user for its pictures")
    content = PICTURE_MARK * len(before) + placed[first].content
    message = replace(placed[first], content=content, pictures=(*before, *placed[first].pictures))
    return (*placed[:first], message, *placed[first + 1 :])


def _placed(message: Message, in_text: Mapping[str, Iterator[tuple[Picture, ...]]]) -> Message:
    """The message with the next media in the place of each mark."""
    marks = re.compile("|".join(map(re.escape, in_text)))
    placed = [next(in_text[m[0]]) for m in marks.finditer(message.content)]
    each = iter(placed)
    content = marks.sub(lambda _: PICTURE_MARK * len(next(each)), message.content)
    pictures = tuple(p for some in placed for p in some)
    return replace(message, content=content, pictures=pictures) if pictures else message


def digests(messages: Iterable[Message]) -> tuple[str, ...]:
    """Of the pictures of messages, by which problems of equal words differ."""
    return tuple(f"{p.digest:x}" for m in messages for p in m.pictures)
