"""How much each sample weighs."""

from typing import ClassVar

import numpy as np

import palaestra as pl

BOUNDS = (0.1, 5.0)  # of alpha and beta
ROUNDING = 1e-6  # an advantage that is nearer to 0 is none


def balance(probability_N: np.ndarray, reward_N: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """alpha and beta [N] of answers, not yet held within `BOUNDS`. A mean of 0 gives ratios of 1."""
    ratios = [x / x.mean() if x.mean() > 0 else np.ones(len(x)) for x in (probability_N, reward_N)]
    return np.maximum(*ratios), np.minimum(*ratios)


@pl.stage
class BalanceSamples:
    """Advantages by `links`, times alpha; beta stays as the column "beta" of the tokens. "reweighted"
    is the mean of |alpha - 1|, 0 for an answer whose advantage is 0. Where that is so of all answers of
    a batch, none is trained on: what is left of the loss has no gradient but rounding errors.
    """

    links: tuple[pl.Link, ...]
    equal: ClassVar[bool] = True  # answers of one prompt are compared with those of others

    def __call__(self, x: pl.Values, table: pl.Table) -> pl.Values:
        x = table.lift(x, "episode")
        at, n = table.tokens, np.maximum(table.lengths_E, 1)
        logp_N = np.array(
            [
                table.views[e][r].logp_T[p]
                for e, r, p in zip(at.episode_N, at.row_N, at.position_N, strict=True)
            ]
        )
        sums_E = np.bincount(at.episode_N, logp_N, minlength=len(table.episodes))
        alpha_E, beta_E = (b.clip(*BOUNDS) for b in balance(np.exp(sums_E / n), x.x_N))
        for link in self.links:
            x = link(x, table)
        some_N = np.abs(table.lift(x, "token").x_N) > ROUNDING
        moved_E = np.bincount(at.episode_N, some_N, minlength=len(table.episodes)) > 0
        if not moved_E.any():
            for e in range(len(table.episodes)):
                table.mute(e)
        alpha = table.lift(pl.Values(level="episode", x_N=alpha_E), x.level)
        table.add_column("beta", pl.Values(level="episode", x_N=beta_E))
        table.track("reweighted", pl.Values(level="episode", x_N=moved_E * np.abs(alpha_E - 1)))
        return pl.Values(level=x.level, x_N=alpha.x_N * x.x_N)
