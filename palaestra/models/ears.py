"""What a language model of the project's own hears sounds with: a log-mel spectrogram, of which
frames become embeddings that stand among those of tokens.

S = sounds of a forward pass, P = places of a sound, D = the model's width.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cache, lru_cache
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.functional import gelu, layer_norm

from palaestra.errors import UserError
from palaestra.models.tower import Tower, at_places
from palaestra.sounds import Sound, resample, samples_of
from palaestra.types import rng_of

EARS = "ears"  # the name of the head
RATE, SECONDS = 8_000, 1  # samples a second, and how long a sound is heard
WINDOW, HOP = 320, 160  # samples of a frame, and from one to the next: 40 and 20 ms
BANDS, FRAMES = 40, RATE * SECONDS // HOP
INNER = 96  # channels of the two convolutions
SPREAD = 0.25  # of an embedding at the start, about that of the embedded model's tokens
FLOOR, RANGE = 1e-10, 8.0  # least power, and decades below the loudest that are told apart
HELD = 256  # sounds whose spectrograms are kept


class Ears(nn.Module):
    """Two convolutions of stride 2 over the 50 frames of a spectrogram with 40 bands, and a projector
    of two layers: 12 places. (Convolutions over log-mel frames: arXiv:2212.04356, section 2.2.)

    Its random start is a path's, the same on every machine.
    """

    places = 12

    def __init__(self, width: int, dtype: torch.dtype = torch.float32):
        super().__init__()
        self.first = nn.Conv1d(BANDS, INNER, 3, stride=2, padding=1, dtype=dtype)
        self.second = nn.Conv1d(INNER, INNER, 3, stride=2, dtype=dtype)
        self.position = nn.Parameter(torch.empty(self.places, INNER, dtype=dtype))
        self.up = nn.Linear(INNER, 2 * INNER, dtype=dtype)
        self.out = nn.Linear(2 * INNER, width, dtype=dtype)
        with torch.no_grad():
            for name, p in self.named_parameters():
                if name.endswith("bias"):
                    p.zero_()
                    continue
                drawn = rng_of(("head", EARS, name, width)).standard_normal(tuple(p.shape))
                scale = 1.0 if name == "position" else p[0].numel() ** -0.5
                p.copy_(torch.from_numpy(drawn * scale))
            self.out.weight.mul_(SPREAD)

    def forward(self, mel_SBF: Tensor) -> Tensor:
        """[S, P, D] of spectrograms [S, 40, 50]."""
        x = gelu(self.first(mel_SBF.to(self.position.dtype)))
        x = gelu(self.second(x)).transpose(1, 2)
        x = _norm(x) + self.position
        return self.out(_norm(gelu(self.up(x))))


def _norm(x: Tensor) -> Tensor:
    return layer_norm(x, x.shape[-1:])


def count_sound_places(ears: Ears | Tower | None, sound: Sound, of: str) -> int:
    """How many places a sound takes. Raises UserError where it cannot be heard."""
    if isinstance(ears, Tower):
        return ears.places(sound)
    if ears is None:
        raise UserError(
            f"{of} has no ears, and a prompt holds a sound; take a model that hears, such as "
            "Qwen2.5-Omni or Qwen2-Audio, train a text model, without a processor of pictures, with "
            f"heads=('{EARS}',), or start from a model that was"
        )
    if not 0 < sound.seconds <= SECONDS:
        raise UserError(
            f"{sound.title} is {sound.seconds:.2f} s long; {of} hears up to {SECONDS} s: cut it"
        )
    return ears.places


# ---- spectrograms


def to_mel(hertz: np.ndarray) -> np.ndarray:
    """Slaney's scale: linear to 1 kHz, 3 mel in 200 Hz, then 27 steps for a factor of 6.4."""
    hertz = np.asarray(hertz, np.float64)
    above = 15 + np.log(np.maximum(hertz, 1000) / 1000) * 27 / np.log(6.4)
    return np.where(hertz < 1000, hertz * 3 / 200, above)


def from_mel(mel: np.ndarray) -> np.ndarray:
    """Hertz of Slaney's scale."""
    mel = np.asarray(mel, np.float64)
    return np.where(mel < 15, mel * 200 / 3, 1000 * np.exp((mel - 15) * np.log(6.4) / 27))


@cache
def mel_filters(rate: int = RATE, window: int = WINDOW, bands: int = BANDS) -> np.ndarray:
    """[window / 2 + 1, bands] triangles of equal area, evenly spaced in mel up to half of the rate."""
    edges = from_mel(np.linspace(0, to_mel(np.array(rate / 2)), bands + 2))
    hertz_K1 = np.linspace(0, rate / 2, window // 2 + 1)[:, None]
    rising = (hertz_K1 - edges[:-2]) / np.diff(edges)[:-1]
    falling = (edges[2:] - hertz_K1) / np.diff(edges)[1:]
    return np.maximum(0, np.minimum(rising, falling)) * (2 / (edges[2:] - edges[:-2]))


def log_mel(samples_N: np.ndarray) -> np.ndarray:
    """float32 [bands, frames] of samples from -1 to 1: decades of power in each band, at most 8 below
    the loudest, (x + 4) / 4; frames stand around every 160th sample, and a Hann window is in each.
    (arXiv:2212.04356 and its released code.)
    """
    padded = np.pad(np.asarray(samples_N, np.float64), WINDOW // 2, mode="reflect")
    frames_FW = np.lib.stride_tricks.sliding_window_view(padded, WINDOW)[::HOP]
    frames_FW = frames_FW[: len(samples_N) // HOP]  # the last one is behind the end
    hann_W = 0.5 - 0.5 * np.cos(2 * np.pi * np.arange(WINDOW) / WINDOW)
    power_FK = np.abs(np.fft.rfft(frames_FW * hann_W)) ** 2
    decades = np.log10(np.maximum(power_FK @ mel_filters(), FLOOR))
    return ((np.maximum(decades, decades.max() - RANGE) + 4) / 4).T.astype(np.float32)


@lru_cache(HELD)
def spectrogram(sound: Sound) -> Tensor:
    """[40, 50] of a sound, at 8 kHz and with silence behind it up to a second."""
    samples_N = resample(samples_of(sound), sound.rate, RATE)[: RATE * SECONDS]
    silent = np.pad(samples_N, (0, RATE * SECONDS - len(samples_N)))
    return torch.from_numpy(log_mel(silent))


# ---- in batches


@dataclass(frozen=True)
class Heard:
    """The sounds of a forward pass, each once: digests [S] in rising order."""

    digest_S: Tensor
    sounds: tuple[Sound, ...]

    @classmethod
    def of(cls, sounds: Iterable[Sound], device: torch.device) -> Heard | None:
        """None where there are none."""
        known = {s.digest: s for s in sounds}
        if not known:
            return None
        digests = sorted(known)
        return cls(torch.tensor(digests, device=device), tuple(known[d] for d in digests))

    @classmethod
    def in_columns(cls, columns: Any) -> Heard | None:
        """Those of a batch's columns, as `sound_columns` makes them; None where it has no such."""
        if "wave" not in columns:
            return None
        wave_NT, heard_N2 = columns["wave"].flatten(0, 1), columns["heard"].flatten(0, 1)
        sounds: list[Sound] = []
        for wave_T, (length, rate) in zip(wave_NT.cpu().numpy(), heard_N2.tolist(), strict=True):
            sounds.append(Sound.from_samples(wave_T[:length], rate))
        return cls.of(sounds, wave_NT.device)

    def embed(self, ears: Ears | Tower, digest_N: Tensor, number_N: Tensor) -> Tensor:
        """[N, D] of places by their sound's digest and their number in it. Raises UserError for a
        sound that is not here.
        """
        digest_K, which_N = digest_N.unique(return_inverse=True)
        at_K = torch.searchsorted(self.digest_S, digest_K).clamp(max=len(self.digest_S) - 1)
        if not torch.equal(self.digest_S[at_K], digest_K):
            raise UserError("the samples of a sound are not here; give them with the tokens")
        if isinstance(ears, Tower):
            heard = [ears.look(self.sounds[k]) for k in at_K.tolist()]
            return at_places(heard, which_N, number_N)
        # one at a time, so that each has the same bits in any company
        mel_K1BF = [spectrogram(self.sounds[k])[None].to(digest_N.device) for k in at_K.tolist()]
        return torch.cat([ears(mel) for mel in mel_K1BF])[which_N, number_N]


def sound_columns(sounds: Sequence[tuple[Sound, ...]]) -> dict[str, Tensor]:
    """Samples "wave" [B, S, T] in int16, and "heard" [B, S, 2], how many of them there are and their
    rate, of the sounds of each row, the last one again where there are fewer; nothing where there
    is none.
    """
    every = next((row for row in sounds if row), None)
    if every is None:
        return {}
    most = max(map(len, sounds))
    # a row without any holds one that none of its places is of
    filled = [s for row in sounds for s in (*row, *[(row or every)[-1]] * (most - len(row)))]
    longest = max(s.shape[0] for s in filled)
    wave_NT = np.zeros((len(filled), longest), np.int16)
    for room, s in zip(wave_NT, filled, strict=True):
        room[: s.shape[0]] = np.frombuffer(s.data, "<i2")
    heard_N2 = torch.tensor([[s.shape[0], s.rate] for s in filled])
    return {
        "wave": torch.from_numpy(wave_NT).view(len(sounds), most, longest),
        "heard": heard_N2.view(len(sounds), most, 2),
    }
