"""What System 1 has seen: where an observation is unlike all of it, control goes back to System 2.

m observations, N that are kept, O numbers of each.
"""

from collections.abc import Callable
from typing import TypeAlias

import numpy as np

import palaestra as pl

KEPT = 1024  # observations of each half of training, and twice as many of System 2's ways
RANK = 0.99  # of training's own distances: what is farther, times a factor, is strange
ROUNDING = 1e-6  # of distances, which are differences of squares
# observations [m, O] to which of them are unlike what was seen [m]
Strange: TypeAlias = Callable[[np.ndarray], np.ndarray]


class SeenViews:
    """Observations of training, drawn at random, and those of System 2's ways that were distilled. The distance of two is
    Euclidean, each number in units of its deviation in training; one that never moved there counts as it is.

    Args:
        obs: [N, O] of training.
        factor: an observation is strange whose distance to the nearest kept one is above `factor` times the 99%
            quantile of what one half of training is away from the other.
    """

    def __init__(self, obs: np.ndarray, factor: float, key: pl.Key):
        order = pl.rng_of((*key, "seen")).permutation(len(obs))[: 2 * KEPT]
        spread = obs.std(0)
        self.scale = np.where(spread > 1e-9, spread, 1.0)
        half = (len(order) + 1) // 2
        self.kept, self.ways = obs[order[:half]] / self.scale, np.zeros((0, obs.shape[1]))
        rest = obs[order[half:]]
        away = self.distance(rest) if len(rest) else np.zeros(1)
        size = 1 + float(np.abs(self.kept).max())
        self.limit = factor * float(np.quantile(away, RANK)) + ROUNDING * size
        self.kept = np.concatenate([self.kept, rest / self.scale])

    def distance(self, obs: np.ndarray) -> np.ndarray:
        """[m] to the nearest kept observation."""
        known, rows = np.concatenate([self.kept, self.ways]), obs / self.scale
        square = lambda x: np.square(x).sum(-1)
        far = square(rows)[:, None] + square(known) - 2 * rows @ known.T
        return np.sqrt(np.maximum(far.min(1), 0.0))

    def add(self, obs: np.ndarray) -> None:
        """Keeps observations of a way that System 1 learns from, the last ones of them."""
        self.ways = np.concatenate([self.ways, obs / self.scale])[-2 * KEPT :]

    def __call__(self, obs: np.ndarray) -> np.ndarray:
        return self.distance(obs) > self.limit if len(obs) else np.zeros(0, bool)
