"""Sounds in prompts: samples as a value, which travels as a `Picture` does and has ids of places of
its own in the same way.

Wherever a message, a row or an engine takes pictures it takes sounds too, in one order with them.
"""

from __future__ import annotations

import base64
import hashlib
import io
import wave
from dataclasses import dataclass

import numpy as np

from palaestra.pictures import DIGEST_BITS, Picture

HIGHEST_RATE = 16_000  # samples a second; what hears language hears no more


@dataclass(frozen=True, slots=True, kw_only=True)
class Sound(Picture):
    """A recording on one channel: samples of 16 bits, little-endian, `rate` of them a second.

    `shape` is (samples, 1, 2), two bytes a sample. `from_samples` makes one of numbers. Raises
    ValueError for another shape, a number of bytes that does not fit, or a rate below 1.
    """

    rate: int

    def __post_init__(self) -> None:
        Picture.__post_init__(self)
        if self.shape[1:] != (1, 2) or self.rate < 1:
            raise ValueError(
                f"a sound has the shape (samples, 1, 2) and a rate above 0, not {self.shape} and "
                f"{self.rate}"
            )

    @classmethod
    def from_samples(cls, samples_N: np.ndarray, rate: int) -> Sound:
        """Of numbers from -1 to 1, or of int16; what is louder is cut off."""
        values_N = np.asarray(samples_N)
        if values_N.dtype != np.int16:
            values_N = np.round(np.clip(values_N.astype(np.float64), -1, 1) * 32767)
        values_N = values_N.astype("<i2").ravel()
        return cls(shape=(len(values_N), 1, 2), data=values_N.tobytes(), rate=int(rate))

    @property
    def digest(self) -> int:
        """50 bits of its rate and samples, the same on every machine."""
        text = b"sound %d %d " % (self.rate, self.shape[0]) + self.data
        whole = int.from_bytes(hashlib.blake2b(text, digest_size=8).digest(), "big")
        return whole >> (64 - DIGEST_BITS)

    @property
    def seconds(self) -> float:
        return self.shape[0] / self.rate

    @property
    def title(self) -> str:
        """What it is called where it cannot be heard: "sound 1.00 s 1a2b"."""
        return f"sound {self.seconds:.2f} s {self.digest:x}"

    def __repr__(self) -> str:
        return f"Sound({self.seconds:.2f} s at {self.rate}, {self.digest:x})"


def sound_of(data: bytes, rate: int) -> Sound:
    """Of samples as they are stored. Raises ValueError where these are none."""
    return Sound(shape=(len(data) // 2, 1, 2), data=data, rate=rate)


def samples_of(sound: Sound) -> np.ndarray:
    """float32 [samples] from -1 to below 1."""
    return np.frombuffer(sound.data, "<i2").astype(np.float32) / 32768


def resample(samples_N: np.ndarray, rate: int, to: int) -> np.ndarray:
    """float64 [round(N * to / rate)]: the same sound at another rate, without what lies above half
    of the lower one (by Fourier's transform, as if the sound came again behind its end).
    """
    n = len(samples_N)
    if rate == to or not n:
        return np.asarray(samples_N, np.float64)
    size = max(1, round(n * to / rate))
    spectrum = np.fft.rfft(np.asarray(samples_N, np.float64))
    kept = np.zeros(size // 2 + 1, complex)
    m = min(len(spectrum), len(kept))
    kept[:m] = spectrum[:m]
    if size < n and size % 2 == 0:
        kept[-1] = 0  # half of the new rate, whose phase would be lost
    return np.fft.irfft(kept, size) * (size / n)


def to_wav(sound: Sound) -> bytes:
    """The bytes of a WAV file."""
    room = io.BytesIO()
    with wave.open(room, "wb") as file:
        file.setnchannels(1)
        file.setsampwidth(2)
        file.setframerate(sound.rate)
        file.writeframes(sound.data)
    return room.getvalue()


def sound_address(sound: Sound) -> str:
    """As "data:audio/wav;base64,...", for pages and for messages."""
    return f"data:audio/wav;base64,{base64.b64encode(to_wav(sound)).decode()}"
