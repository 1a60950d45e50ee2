"""Two tokenisations of one text, cut where both have a boundary.

    "unbelievable"    student  un | believable        spans  un | believable
                      teacher  un | bel | ievable

A span is the smallest run of tokens of each whose text is the same, so the probability that each model
gives to a span's text, the product of its tokens', can be compared (of the ways to spell it, that of
one). Texts are compared by characters: a boundary inside a character is none.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from palaestra.types import value_class

Decode = Callable[[Sequence[int]], str]
TORN = "\ufffd"  # what a decoder writes for a part of a character


@value_class
class Alignment:
    """The number of each token's span, from 1 on; 0 = it is in none."""

    own_T: np.ndarray  # int64
    their_T: np.ndarray  # int64

    def sums(self, logp_T: np.ndarray) -> np.ndarray:
        """[spans + 1] log-probs of their texts, from those of their tokens; the first is of no span."""
        return np.bincount(self.their_T, logp_T, minlength=self.spans + 1)

    @property
    def spans(self) -> int:
        return int(max(self.own_T.max(initial=0), self.their_T.max(initial=0)))

    def sizes(self) -> tuple[np.ndarray, np.ndarray]:
        """[spans + 1] how many tokens of each a span has."""
        n = self.spans + 1
        return np.bincount(self.own_T, minlength=n), np.bincount(self.their_T, minlength=n)


def text_ends(ids: Sequence[int], decode: Decode) -> tuple[str, list[int]]:
    """The text of tokens up to its last whole character, and where in it the text of each token ends;
    -1 = inside a character, or behind the last whole one.

    A token is decoded behind the one before it, as decoders write the first token of a text otherwise.
    """
    text, ends, context, begin = "", list[int](), 0, 0
    for i in range(len(ids)):
        before = decode(ids[context:begin])
        now = decode(ids[context : i + 1])
        if now.endswith(TORN):
            ends.append(-1)
            continue
        text += now[len(before) :]
        ends.append(len(text))
        context, begin = begin, i + 1
    return text, ends


def align(own_ends: Sequence[int], their_ends: Sequence[int], common: int) -> Alignment:
    """The spans of two tokenisations whose first `common` characters are the same.

    Args:
        own_ends: where in the text each token ends, not falling; -1 = it has no boundary behind it.
        their_ends: the same of the other tokenisation.
    """
    both = {e for e in own_ends if 0 <= e <= common} & {e for e in their_ends if e >= 0}
    cuts = np.array(sorted(both), np.int64)
    return Alignment(own_T=_numbers(own_ends, cuts), their_T=_numbers(their_ends, cuts))


def _numbers(ends: Sequence[int], cuts: np.ndarray) -> np.ndarray:
    known = np.array(ends, np.int64)
    for t in range(len(known) - 2, -1, -1):  # a torn token ends where the next whole one does
        if known[t] < 0:
            known[t] = known[t + 1]
    number_T = np.searchsorted(cuts, known) + 1
    number_T[(known < 0) | (number_T > len(cuts))] = 0
    return number_T


def common_length(a: str, b: str) -> int:
    """Of how many characters two texts begin alike."""
    n = min(len(a), len(b))
    return next((i for i in range(n) if a[i] != b[i]), n)
