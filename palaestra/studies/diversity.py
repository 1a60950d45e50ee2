"""How different the texts of a set are. N texts, D = a vector's width."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

LONGEST = 5  # words of an n-gram


def distinct_ngrams(texts: Sequence[Sequence[int | str]], vocabulary: int) -> float:
    """Expectation-adjusted distinct n-grams, a mean over n = 1..5 of

        N_n / (V (1 - ((V - 1) / V)^C_n)),   N_n different ones of C_n

    so that long texts are not called less diverse for their length (Liu et al. 2022,
    arXiv:2202.13587; as in arXiv:2310.06452). Lengths at which no text has an n-gram are left out.
    V counts single tokens at every n, as in the released code: with a vocabulary of a few hundred tokens the
    value may be above 1.

    Args:
        texts: as tokens or words; an empty one counts as one token of its own.
        vocabulary: V, the number of tokens that there are.

    Raises:
        ValueError: no texts.
    """
    if not texts:
        raise ValueError("the diversity of no texts")
    whole = [tuple(text) or ("",) for text in texts]
    scores: list[float] = []
    for n in range(1, LONGEST + 1):
        grams = [t[i : i + n] for t in whole for i in range(len(t) - n + 1)]
        if grams:
            expected = vocabulary * (1 - (1 - 1 / vocabulary) ** len(grams))
            scores.append(len(set(grams)) / expected)
    return float(np.mean(scores))


def spread(vectors_ND: np.ndarray) -> float:
    """1 - the mean cosine of all pairs of vectors. Raises ValueError for fewer than two."""
    n = len(vectors_ND)
    if n < 2:
        raise ValueError("the spread of fewer than two vectors")
    length_N1 = np.linalg.norm(vectors_ND, axis=1, keepdims=True)
    unit_ND = vectors_ND / np.maximum(length_N1, 1e-12)
    cosines_NN = unit_ND @ unit_ND.T
    return float(1 - (cosines_NN.sum() - np.trace(cosines_NN)) / (n * (n - 1)))
