"""Pictures in prompts: pixels as a value, and ids of their own for the places that they take.

A place of a picture is an id like a token's, made of the picture's digest and the number of the
place. So a row stays one run of integers, and all that compares ids tells pictures apart: the
engine's prefixes, equal prompts that are computed once, branches. With one common id for all
places, two prompts with equal words and different pictures would be the same prompt.

An id is FIRST_PLACE + digest * 4096 + place. Digests have 50 bits: two different pictures share
one with a probability of 1e-15 a pair, and never where they meet in one batch (`UserError`).
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from palaestra.errors import UserError

FIRST_PLACE = 1 << 62  # ids from here on are places of pictures; tokens are below
PLACE_BITS, DIGEST_BITS = 12, 50
PICTURE_MARK = "\ufffc"  # where a picture stands in a content: Unicode's object replacement


@dataclass(frozen=True, slots=True, kw_only=True)
class Picture:
    """Pixels, 8 bits a channel: `data` holds `shape` = (height, width, channels) numbers, row by
    row. Raises ValueError where their number is another.
    """

    shape: tuple[int, int, int]
    data: bytes

    def __post_init__(self) -> None:
        height, width, channels = self.shape
        if len(self.data) != height * width * channels:
            raise ValueError(f"{len(self.data)} bytes are no picture of the shape {self.shape}")

    @property
    def digest(self) -> int:
        """50 bits of its shape and pixels, the same on every machine."""
        text = b"%d %d %d " % self.shape + self.data
        whole = int.from_bytes(hashlib.blake2b(text, digest_size=8).digest(), "big")
        return whole >> (64 - DIGEST_BITS)

    def ids(self, places: int) -> tuple[int, ...]:
        """The ids of its places, from the first on."""
        first = FIRST_PLACE + (self.digest << PLACE_BITS)
        return tuple(range(first, first + places))

    @property
    def title(self) -> str:
        """What it is called where it cannot be shown: "picture 32x32 1a2b", height first."""
        return f"picture {self.shape[0]}x{self.shape[1]} {self.digest:x}"

    def __repr__(self) -> str:
        return f"Picture({'x'.join(map(str, self.shape))}, {self.digest:x})"


def digest_of(place: int) -> int:
    """The digest of the picture that an id is a place of."""
    return (place - FIRST_PLACE) >> PLACE_BITS


def by_digest(pictures: Iterable[Picture]) -> Mapping[int, Picture]:
    """Each picture once. Raises UserError where different ones have the same digest."""
    pictures_by_digest: dict[int, Picture] = {}
    for picture in pictures:
        if pictures_by_digest.setdefault(picture.digest, picture) != picture:
            raise UserError(
                f"two pictures have the digest {picture.digest:x} and different pixels; change one "
                "of them"
            )
    return pictures_by_digest


def need_text_alone(ids: Sequence[int], why: str) -> None:
    """Raises UserError where a place of a picture is among the ids; `why` says who cannot see it."""
    if max(ids, default=0) >= FIRST_PLACE:
        raise UserError(f"{why}, and there is a picture among the tokens")


def name_pictures(content: str, pictures: Sequence[Picture]) -> str:
    """The content for the eye, each picture by its size and digest: "[picture 32x32 1a2b] use red"."""
    first, *rest = content.split(PICTURE_MARK, len(pictures))
    return first + "".join(f"[{p.title}] {text}" for p, text in zip(pictures, rest, strict=True))


def pictures_in(ids: Sequence[int], known: Mapping[int, Picture]) -> tuple[Picture, ...]:
    """The pictures whose places are among the ids, in order. Raises UserError for one that is not
    known.
    """
    digests = dict.fromkeys(digest_of(i) for i in ids if i >= FIRST_PLACE)
    missing = [d for d in digests if d not in known]
    if missing:
        raise UserError(
            f"the pixels of the picture {missing[0]:x} are not here; give them with the tokens"
        )
    return tuple(known[d] for d in digests)
