"""Videos as frames: which frames of a clip become the pictures of a prompt, and how a file is read.

Of T frames n are taken at equal distances, the first and the last among them: frame number
round(i (T - 1) / (n - 1)) for i in 0..n-1 (a half to the even number), the middle one where n is 1,
and all where there are no more. Qwen's reader takes these too (QwenLM/Qwen2-VL, vision_process.py).

Pillow reads animated GIF, WebP, PNG and TIFF files. MP4 and other containers are read where the
package `av` is installed (extra `video`), frame by frame, so that only those that are taken are
kept in memory.
"""

from __future__ import annotations

import io
import re
from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from importlib import import_module
from pathlib import Path
from typing import Any

from PIL import Image

from palaestra.errors import UserError
from palaestra.pictures import Picture
from palaestra.tasks.picture_files import (
    ENDINGS,
    LOCAL,
    explain,
    find_file,
    from_pillow,
    is_data_url,
    local_path,
    read_picture,
    unpack_picture,
)
from palaestra.tasks.records import describe_value

VIDEO_COLUMNS = ("video", "videos")
VIDEO_PARTS = ("video", "video_url", "input_video")  # types of parts of messages that are videos
VIDEO_PLACEHOLDER = "<video>"  # where a video of a column stands in a text
ANIMATED = (".gif", ".webp", ".apng", ".png", ".tif", ".tiff", ".avif")
CONTAINERS = (
    ".mp4", ".m4v", ".mov", ".mkv", ".webm", ".avi", ".mpg", ".mpeg", ".wmv", ".flv", ".ogv",
    ".3gp", ".ts",
)  # fmt: skip
MOST_FRAMES = 16  # of a video, as SEED-Bench-R1 takes
# how MP4, Matroska, AVI, MPEG, FLV and ASF files begin
CONTAINER = re.compile(
    rb".{4}ftyp|\x1aE\xdf\xa3|RIFF.{4}AVI |\x00\x00\x01[\xba\xb3]|FLV\x01|0&\xb2u", re.DOTALL
)
DIGITS = re.compile(r"(\d+)")
HELD = 4  # videos that are kept after they were read


def frame_places(total: int, n: int) -> list[int]:
    """Which n of `total` frames are taken, in order; all where there are no more."""
    if total <= n:
        return list(range(total))
    if n == 1:
        return [(total - 1) // 2]
    return [round(i * (total - 1) / (n - 1)) for i in range(n)]


def frames_in_folder(folder: Path, endings: Sequence[str], n: int, where: str) -> list[Path]:
    """The files of n frames of a folder, in the order of the numbers in their names: 2.png stands
    before 10.png. Raises UserError where there is none.
    """
    files = [
        p
        for p in folder.iterdir()
        if p.suffix.casefold() in endings and not p.name.startswith(".") and p.is_file()
    ]
    if not files:
        raise UserError(
            f"{where}: the folder {str(folder)!r} has no pictures; a folder is a video where its files "
            "are the frames, e.g. 0001.png"
        )
    files.sort(key=lambda p: ([int(x) for x in DIGITS.findall(p.stem)], p.name))
    return [files[i] for i in frame_places(len(files), n)]


def decode_frames(data: bytes, n: int, where: str) -> list[Image.Image]:
    """n frames of a file. What Pillow cannot read is its own error."""
    if CONTAINER.match(data):
        return decode_container(data, n, where)
    image: Any = Image.open(io.BytesIO(data))
    frames = list[Image.Image]()
    for i in frame_places(getattr(image, "n_frames", 1), n):
        image.seek(i)
        frames.append(image.copy())
    return frames


def decode_container(data: bytes, n: int, where: str) -> list[Image.Image]:
    """n frames of a file of a video format, by the package `av`. Raises UserError without it."""
    try:
        av: Any = import_module("av")
    except ImportError:
        raise UserError(
            f"{where} is a video file, and nothing that decodes one is installed; pip install "
            "'palaestra[video]', or extract its frames into a folder, ffmpeg -i clip.mp4 -vf fps=1 "
            "clip/%04d.png, and name the folder"
        ) from None

    def pictures() -> Iterator[Any]:
        with av.open(io.BytesIO(data)) as container:
            if not container.streams.video:
                raise ValueError("it has no pictures, only sound perhaps")
            yield from container.decode(video=0)

    try:
        # a header's number of frames may be missing or wrong
        chosen = {*frame_places(sum(1 for _ in pictures()), n)}
        return [frame.to_image() for i, frame in enumerate(pictures()) if i in chosen]
    except av.error.FFmpegError as error:
        raise UserError(f"{where} cannot be read: {error}") from None


def is_folder(path: Path) -> bool:
    try:
        return path.is_dir()
    except OSError:
        return False


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
    if is_data_url(text):
        return _from_frames(unpack_picture(text, where), where, most, n)
    if "://" in text[:16] and not LOCAL.match(text):
        raise UserError(
            f"{where} is the URL {text[:60]!r}, and nothing is fetched from the net; download the "
            "video and write its path"
        )
    if is_folder(inside := folder / local_path(text)):
        files = frames_in_folder(inside, ENDINGS, n, where)
        return tuple(read_picture(str(p.resolve()), where, folder, most) for p in files)
    path = find_file(text, where, folder, "video")
    with explain(f"{where}: {path}"):
        stat = path.stat()
        return _from_video(path, stat.st_mtime_ns, stat.st_size, most, n)


@lru_cache(HELD)
def _from_video(path: Path, changed: int, size: int, most: int, n: int) -> tuple[Picture, ...]:
    return tuple(from_pillow(x, most) for x in decode_frames(path.read_bytes(), n, str(path)))


def _from_frames(data: bytes, where: str, most: int, n: int) -> tuple[Picture, ...]:
    with explain(where):
        return tuple(from_pillow(x, most) for x in decode_frames(data, n, where))
