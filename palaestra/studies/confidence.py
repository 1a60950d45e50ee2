"""How far confidence and correctness agree. N = answers that were counted, M = bins."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from palaestra.run.evaluation import vote_key
from palaestra.stats import Interval
from palaestra.studies.items import Item
from palaestra.types import Key, rng_of

BINS = 10
DRAWS = 1000  # of the bootstrap, and of a model that is as right as it is sure


def calibration_error(
    confidence_N: Sequence[float] | np.ndarray, right_N: Sequence[float] | np.ndarray
) -> float:
    """The expected calibration error,

        ECE = sum_m n_m / N |mean(right in m) - mean(confidence in m)|

    over the bins ((m - 1) / 10, m / 10], 0 in the first one; empty bins count nothing (Guo et al. 2017,
    arXiv:1706.04599, eq. 3; Naeini et al. 2015).

    Raises:
        ValueError: no values, as many of one as of the other not, or a confidence outside of [0, 1].
    """
    c_N, r_N = np.asarray(confidence_N, np.float64), np.asarray(right_N, np.float64)
    if not len(c_N) or c_N.shape != r_N.shape or not ((c_N >= 0) & (c_N <= 1)).all():
        raise ValueError("confidences between 0 and 1, as many as outcomes, and at least one")
    bin_N = bins_of(c_N)
    gaps_M = np.bincount(bin_N, weights=r_N - c_N, minlength=BINS)
    return float(np.abs(gaps_M).sum() / len(c_N))


def bins_of(confidence_N: np.ndarray) -> np.ndarray:
    """[N] the bin of each confidence, from 0."""
    # rounded, so that 3/10 lies in (.2, .3] however it was divided
    return np.clip(np.ceil(np.round(confidence_N * BINS, 9)).astype(int) - 1, 0, BINS - 1)


def error_interval(
    confidence_N: Sequence[float], right_N: Sequence[float], key: Key
) -> tuple[Interval, float]:
    """The calibration error with the percentile interval of problems drawn again, and the error that
    is expected of a model which is right exactly as often as it is sure, with the same confidences: the
    error of a few answers is above 0 by chance alone.
    """
    c_N, r_N = np.asarray(confidence_N, np.float64), np.asarray(right_N, np.float64)
    rng, n = rng_of(key), len(c_N)
    drawn = [
        calibration_error(c_N[at], r_N[at]) for at in (rng.integers(0, n, n) for _ in range(DRAWS))
    ]
    ideal = [calibration_error(c_N, rng.random(n) < c_N) for _ in range(DRAWS)]
    low, high = np.quantile(drawn, [0.025, 0.975])
    return Interval(mean=calibration_error(c_N, r_N), low=float(low), high=float(high), n=n), float(
        np.mean(ideal)
    )


def error_difference(
    before: tuple[Sequence[float], Sequence[float]],
    after: tuple[Sequence[float], Sequence[float]],
    key: Key,
) -> Interval:
    """The calibration error after less that before, of the same problems, with the percentile interval
    of problems drawn again; each is (confidences, outcomes).
    """
    pair = [(np.asarray(c, np.float64), np.asarray(r, np.float64)) for c, r in (before, after)]
    rng, n = rng_of(key), len(pair[0][0])

    def difference(at: np.ndarray) -> float:
        first, last = (calibration_error(c[at], r[at]) for c, r in pair)
        return last - first

    drawn = [difference(rng.integers(0, n, n)) for _ in range(DRAWS)]
    low, high = np.quantile(drawn, [0.025, 0.975])
    return Interval(mean=difference(np.arange(n)), low=float(low), high=float(high), n=n)


def voted(item: Item) -> tuple[float, float]:
    """The share of a problem's samples that give its most frequent answer, and whether that answer is
    right (a share, where equal answers were judged differently). Of equally frequent ones the first
    counts. Answers are equal where their last lines are, without case and spaces.
    """
    keys = [vote_key(text) for text in item["texts"]]
    top = max(keys, key=keys.count)
    own = [bool(r) for k, r in zip(keys, item["right"], strict=True) if k == top]
    return len(own) / len(keys), sum(own) / len(own)
