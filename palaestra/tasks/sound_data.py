"""Sounds in a user's records: columns `audio` and `audios`, and parts of messages.

    {"audio": "clips/1.wav", "prompt": "How many beeps?", "answer": 3}
    {"messages": [{"role": "user", "content": [{"type": "audio", "audio": "a.wav"}, {"type": "text", "text": "..."}]}]}
    {"type": "input_audio", "input_audio": {"data": "UklGR...", "format": "wav"}}

A sound is the path of a WAV file (PCM with 8, 16, 24 or 32 bits, one channel or several, which are
averaged), relative to the record's file; bytes of such a file; {"bytes": ..., "path": ...} or
{"array": ..., "sampling_rate": ...} as data sets of the hub have it; or a data: URL. Other formats,
and the sound of a video file, are decoded by the package `av` where it is installed. Where sounds
of columns stand is as with pictures, see `picture_data`, and the mark in a text is `<audio>`.
Sounds are kept with 16 bits, and with 16,000 samples a second where the file has more. A sound of
more than a minute is refused, unless --max-duration says how long sounds may be: then the end of a
longer one is cut off.
"""

from __future__ import annotations

import base64
import binascii
import io
import wave
from collections.abc import Mapping
from functools import lru_cache
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np

from palaestra.errors import UserError
from palaestra.sounds import HIGHEST_RATE, Sound, resample, sound_address
from palaestra.tasks.picture_files import IN_BASE64, explain, find_file, is_data_url, plain_text
from palaestra.tasks.records import describe_value
from palaestra.tasks.video_data import CONTAINERS

SOUND_COLUMNS = ("audio", "audios")
SOUND_PARTS = ("audio", "input_audio", "audio_url")  # types of parts that are sounds
SOUND_MARK = "<audio>"  # where a sound of a column stands in a text
WAV = (".wav", ".wave")
SOUND_ENDINGS = (
    *WAV, ".mp3", ".flac", ".ogg", ".oga", ".opus", ".m4a", ".aac", ".aif", ".aiff", ".wma",
    ".webm", ".amr", *CONTAINERS,
)  # fmt: skip
LONGEST = 60  # seconds of a sound, where --max-duration says nothing
HELD = 32  # sounds that are kept after they were read
CONVERT = "write a PCM WAV file, e.g. with: ffmpeg -i FILE -c:a pcm_s16le FILE.wav"


def write_sound(samples_N: np.ndarray, rate: int) -> str:
    """A sound as a data: URL, which a column `audio` may have.

    Args:
        samples_N: from -1 to 1.
        rate: samples a second.
    """
    return sound_address(Sound.from_samples(samples_N, rate))


def sound_part(part: Mapping[str, Any]) -> Any:
    """What a part of a message says of its sound; None = nothing."""
    names = ("audio", "input_audio", "audio_url", "url", "path", "base64")
    value = next((part[k] for k in names if part.get(k) is not None), None)
    if isinstance(value, Mapping) and "url" in value:
        value = value["url"]
    if isinstance(value, Mapping) and isinstance(value.get("data"), str):  # OpenAI's form
        form = value.get("format", "wav")
        return f"data:audio/{form};base64,{value['data']}"
    if part.get("base64") is value and isinstance(value, str):
        return f"data:audio/wav;base64,{value}"
    return value


def of_array(value: Mapping[str, Any], where: str, most: float = 0.0) -> Sound:
    """Of {"array": numbers from -1 to 1, [samples] or [channels, samples], "sampling_rate": Hz}."""
    rate = value.get("sampling_rate")
    if isinstance(rate, bool) or not isinstance(rate, int) or rate < 1:
        raise UserError(
            f"{where}: sampling_rate is {describe_value(rate)}; write a whole number of hertz"
        )
    try:
        samples = np.asarray(value["array"], np.float64)
    except (TypeError, ValueError):
        raise UserError(f"{where}: array holds something other than numbers") from None
    if samples.ndim == 2 and min(samples.shape):  # channels are fewer than samples
        samples = samples.mean(0 if samples.shape[0] <= samples.shape[1] else 1)
    if samples.ndim != 1 or not np.isfinite(samples).all():
        raise UserError(f"{where}: array is no list of finite numbers, one a sample")
    return _keep(samples[: _most_samples(len(samples), rate, most, where)], rate, where)


def _most_samples(n: int, rate: int, most: float, where: str) -> int:
    """How many of `n` samples are kept. Raises UserError for a very long sound, where `most` says no
    number of seconds.
    """
    if most:
        return min(n, max(1, int(most * rate)))
    if n > LONGEST * max(rate, 1):
        raise UserError(
            f"{where} is {n / max(rate, 1):.0f} s long, and sounds have at most {LONGEST} s; cut it, or "
            f"say with --max-duration how many seconds to keep"
        )
    return n


def _keep(samples_N: np.ndarray, rate: int, where: str) -> Sound:
    """16 bits, at the rate that is kept. Raises UserError for an empty sound."""
    if not len(samples_N):
        raise UserError(f"{where} has no samples")
    if rate > HIGHEST_RATE:
        samples_N, rate = resample(samples_N, rate, HIGHEST_RATE), HIGHEST_RATE
    return Sound.from_samples(samples_N, rate)


def read_wav(data: bytes, where: str, most: float = 0.0) -> Sound:
    """Of the bytes of a WAV file, or of another that `decode_sound` reads, at most so many seconds; 0 = a
    longer one than a minute is refused. Raises UserError.
    """
    try:
        with wave.open(io.BytesIO(data)) as file:
            channels, width, rate = file.getnchannels(), file.getsampwidth(), file.getframerate()
            frames = file.readframes(_most_samples(file.getnframes(), rate, most, where))
    except (wave.Error, EOFError) as error:
        return decode_sound(data, where, most, str(error) or "it ends too early")
    if width not in (1, 2, 3, 4) or rate < 1:
        raise UserError(f"{where} has samples of {8 * width} bits at {rate} Hz; {CONVERT}")
    if len(frames) % (width * channels):
        raise UserError(f"{where} ends within a sample; write the file again")
    samples_NC = _numbers(frames, width).reshape(-1, channels)
    if channels == 1 and width == 2 and len(samples_NC) > 0 and rate <= HIGHEST_RATE:
        return Sound(shape=(len(samples_NC), 1, 2), data=frames, rate=rate)
    # of 32767 as `Sound.from_samples` has it, so that samples of 16 bits stay what they are
    return _keep(samples_NC.mean(1) / 32767, rate, where)


def decode_sound(data: bytes, where: str, most: float, why: str) -> Sound:
    """The sound of a file of another format, or of a video, by the package `av`, on one channel and with
    at most 16,000 samples a second. Raises UserError without the package, for a file that it does not
    read, and for one without sound; `why` says why it is no WAV file.
    """
    try:
        av: Any = import_module("av")
    except ImportError:
        raise UserError(
            f"{where} is no WAV file that is read here ({why}); {CONVERT}, or pip install "
            "'palaestra[video]', which reads other formats"
        ) from None
    blocks = list[np.ndarray]()
    try:
        with av.open(io.BytesIO(data)) as container:
            if not container.streams.audio:
                raise UserError(f"{where} has no sound; leave it out of `audio`")
            rate = min(container.streams.audio[0].rate, HIGHEST_RATE)
            single = av.AudioResampler(format="s16", layout="mono", rate=rate)
            for frame in (*container.decode(audio=0), None):  # None: what is left in it
                blocks += [x.to_ndarray().ravel() for x in single.resample(frame)]
    except av.error.FFmpegError as error:
        raise UserError(f"{where} cannot be read as a sound: {error}; {CONVERT}") from None
    samples_N = np.concatenate([np.zeros(0, np.int16), *blocks])
    return _keep(samples_N[: _most_samples(len(samples_N), rate, most, where)], rate, where)


def _numbers(frames: bytes, width: int) -> np.ndarray:
    """float64 in units of 16 bits; 8 bits are unsigned, as WAV has them."""
    if width == 1:
        return (np.frombuffer(frames, np.uint8).astype(np.float64) - 128) * 256
    if width == 3:
        bytes_N3 = np.frombuffer(frames, np.uint8).reshape(-1, 3)
        whole = np.zeros((len(bytes_N3), 4), np.uint8)
        whole[:, 1:] = bytes_N3
        return whole.view("<i4")[:, 0] / 65536
    return np.frombuffer(frames, f"<i{width}").astype(np.float64) / (1 if width == 2 else 65536)


@lru_cache(HELD)
def sound_file(path: Path, changed: int, size: int, most: float = 0.0) -> Sound:
    """Of a WAV file as it was at a time, in nanoseconds. Raises UserError and OSError."""
    return read_wav(path.read_bytes(), str(path), most)


def unpack_sound(url: str, where: str) -> bytes:
    """The bytes of a data: URL."""
    head, comma, body = url.partition(",")
    try:
        if not comma or not head.casefold().endswith(";base64"):
            raise ValueError
        return base64.b64decode("".join(body.split()), validate=True)
    except (ValueError, binascii.Error):
        raise UserError(
            f"{where}: {url[:40]!r}... is no sound in base64; write data:audio/wav;base64,..."
        ) from None


def read_sound(value: Any, where: str, folder: Path, most: float = 0.0) -> Sound:
    """One sound in any of the forms above, at most so many seconds of it; 0 = a longer one than a minute
    is refused. Raises UserError.
    """
    if isinstance(value, Sound):
        return value
    if isinstance(value, Mapping):  # of data sets
        if value.get("array") is not None:
            return of_array(value, where, most)
        value = value.get("bytes") or value.get("path")
    if isinstance(value, bytes | bytearray):
        return read_wav(bytes(value), where, most)
    text = plain_text(value, where, "sound")
    if is_data_url(text):
        return read_wav(unpack_sound(text, where), where, most)
    if IN_BASE64.fullmatch(text):
        raise UserError(
            f"{where} is a sound in base64, {text[:20]!r}...; write data:audio/wav;base64,... before it"
        )
    path = find_file(text, where, folder, "sound")
    with explain(f"{where}: {path}"):
        stat = path.stat()
        return sound_file(path, stat.st_mtime_ns, stat.st_size, most)
