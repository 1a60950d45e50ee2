"""What a predictor sees of a conversation so far, one state for each message.

    [embedding E, 5 metrics, turn / 20, the last 10 of its own probabilities]          E + 16 numbers

The embedding is that of the whole text so far, times 0.6 + 0.4 min(1, turn / 20). Metrics are the
customer's engagement, the seller's effectiveness, the length, a cue of the outcome, and the progress,
min(1, turn / 20); the first two are a language model's, 0.5 where nobody is asked.

N conversations, T messages.
"""

import re
import zlib
from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any

import numpy as np

import palaestra as pl
from palaestra.recipes.llm4rl.salesrlagent.talks import SalesTalk, script

METRICS, PAST, HORIZON = 5, 10, 20
ENGAGEMENT, EFFECTIVENESS, LENGTH, OUTCOME, PROGRESS = range(METRICS)
NEUTRAL = 0.5
Embed = Callable[[Sequence[str]], Any]


def state_width(embedding: int) -> int:
    """Numbers of a state."""
    return embedding + METRICS + 1 + PAST


def hashed_text(messages: Sequence[tuple[str, str]], width: int) -> np.ndarray:
    """[width] words and pairs of words, with who says them, hashed with a sign, of length 1; zeros of
    a text without words.
    """
    vector = np.zeros(width)
    for role, text in messages:
        words = re.findall(r"\w+|[?!]", text.lower())
        for gram in (*words, *map(" ".join, pairwise(words))):
            code = zlib.crc32(f"{role} {gram}".encode())
            vector[code % width] += 1.0 if code & 1 << 31 else -1.0
    size = float(np.linalg.norm(vector))
    return vector / size if size else vector


def embeddings_of(talk: SalesTalk, width: int, embed: Embed | None) -> np.ndarray:
    """[T, E] of every prefix. Raises UserError where `embed` gives something else than vectors of one
    length.
    """
    prefixes = [talk.messages[: t + 1] for t in range(len(talk.messages))]
    if embed is None:
        vectors = np.array([hashed_text(p, width) for p in prefixes])
    else:
        try:
            vectors = np.array(
                [[float(x) for x in v] for v in embed([script(p) for p in prefixes])]
            )
        except (TypeError, ValueError) as error:
            raise pl.UserError(f"embed= gives a vector of numbers for each text; {error}") from None
        if vectors.ndim != 2 or len(vectors) != len(prefixes) or not np.isfinite(vectors).all():
            raise pl.UserError(
                f"embed= gave numbers of the shape {vectors.shape} for {len(prefixes)} texts; it takes a "
                "list of texts and gives as many vectors, all of one length and finite"
            )
    turn = np.arange(1, len(prefixes) + 1)
    return vectors * (0.6 + 0.4 * np.minimum(1, turn / HORIZON))[:, None]


@pl.value_class
class TalkTable:
    """Conversations as arrays, padded behind their last message.

    Args:
        x: [N, T, E + 6] states without the predictor's own probabilities.
        converted: [N] 0 or 1.
        length: [N] messages.
    """

    x: np.ndarray
    converted: np.ndarray
    length: np.ndarray

    @property
    def alive(self) -> np.ndarray:
        """[N, T]"""
        return np.arange(self.x.shape[1]) < self.length[:, None]

    @property
    def width(self) -> int:
        """E, of the embedding."""
        return self.x.shape[2] - METRICS - 1

    def with_metric(self, metric: int, values: np.ndarray) -> "TalkTable":
        """The same with another column of [N, T] numbers."""
        x = self.x.copy()
        x[..., self.width + metric] = values
        return TalkTable(x=x, converted=self.converted, length=self.length)


def table_of(talks: Sequence[SalesTalk], width: int, embed: Embed | None, turns: int) -> TalkTable:
    """Conversations as arrays of `turns` messages. Raises UserError for vectors of several lengths."""
    rows = [embeddings_of(talk, width, embed) for talk in talks]
    if len(sizes := {row.shape[1] for row in rows}) > 1:
        raise pl.UserError(f"embed= gave vectors of several lengths, {sorted(sizes)}")
    E = sizes.pop()
    x = np.zeros((len(talks), turns, E + METRICS + 1), np.float32)
    x[..., E : E + METRICS] = NEUTRAL
    turn = np.arange(1, turns + 1)
    x[..., E + LENGTH] = x[..., E + PROGRESS] = np.minimum(1, turn / HORIZON)
    x[..., -1] = turn / HORIZON
    for row, vectors in zip(x, rows, strict=True):
        row[: len(vectors), :E] = vectors
        row[len(vectors) :, :E] = vectors[-1]
    converted = np.array([talk.converted for talk in talks], float)
    return TalkTable(x=x, converted=converted, length=np.array([len(r) for r in rows]))


def exchanged(values: np.ndarray, length: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """[N, T] each conversation has another one's numbers of the same turn, or of its last one before."""
    order = pl.control.shuffle_rows(np.arange(len(values))[:, None], rng)[:, 0]
    at = np.minimum(np.arange(values.shape[1]), length[order][:, None] - 1)
    return np.take_along_axis(values[order], at, 1)
