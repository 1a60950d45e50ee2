"""Ratings of players who met each other: Bradley and Terry's model, fitted by maximum likelihood.

    P(a beats b) = 1 / (1 + 10^((R_b - R_a) / 400)),      a draw is half a win for both

One drawn game is added to each pair that met, so that a player who won or lost everything has a
finite rating; it moves a rating towards 0, and less the more games there are. Ratings have mean 0.
Intervals are percentiles of a bootstrap that draws deals anew within each pair: the two games of one
deal, with the seats swapped, stay together. One more deal that both share is among those it draws
from, so a pair in which one player won everything has an interval too; its outer end is then the
rating itself, for the games set no limit there (Bradley & Terry 1952; Hunter 2004 for the
iteration).

P players, B draws of the bootstrap, D deals of a pair.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from palaestra.types import rng_of

SCALE = 400 / np.log(10)  # points of a natural log-odds
DRAWS, ROUNDS, CLOSE = 1000, 10_000, 1e-9
Points = Sequence[tuple[float, float]]  # by deal, of the first player of a pair and of the second


def fit_ratings(points_BPP: np.ndarray) -> np.ndarray:
    """Ratings [B, P] from points [B, P, P], of the row player against the column player.

    Hunter's iteration: s_a <- (points of a) / sum over b of games(a, b) / (s_a + s_b).

    >>> won = np.array([[[0.0, 75.0], [25.0, 0.0]]])
    >>> np.round(fit_ratings(won)[0], 1).tolist()  # 400 log10(75.5 / 25.5) apart
    [94.3, -94.3]
    """
    n_BPP = points_BPP + points_BPP.transpose(0, 2, 1)
    met = n_BPP > 0
    points_BPP = points_BPP + 0.5 * met
    n_BPP = n_BPP + met
    won_BP = points_BPP.sum(2)
    s_BP = np.ones_like(won_BP)
    for _ in range(ROUNDS):
        weight_BP = (n_BPP / (s_BP[:, :, None] + s_BP[:, None, :])).sum(2)
        new_BP = won_BP / np.where(weight_BP, weight_BP, 1.0)
        new_BP = np.where(weight_BP > 0, new_BP, 1.0)
        new_BP /= np.exp(np.log(new_BP).mean(1, keepdims=True))
        moved = np.abs(np.log(new_BP / s_BP)).max(initial=0.0)
        s_BP = new_BP
        if moved < CLOSE:
            break
    return SCALE * np.log(s_BP)


def ratings(
    players: int, games: Mapping[tuple[int, int], Points], draws: int = DRAWS
) -> list[dict[str, float]]:
    """{"rating", "low", "high"} of each player, with a 95% interval.

    Args:
        players: how many there are.
        games: by pair of their numbers, for each deal the points of both.
    """
    total, drawn = np.zeros((1, players, players)), np.zeros((draws, players, players))
    for (a, b), points in games.items():
        if not points:
            continue
        points_D2 = np.array(points)
        shared = points_D2.sum() / len(points) / 2
        pool_D2 = np.concatenate([points_D2, [[shared, shared]]])
        rng = rng_of(("ratings", a, b))
        chosen_BD = rng.integers(len(pool_D2), size=(draws, len(points)))
        for i, j, side in ((a, b, 0), (b, a, 1)):
            total[0, i, j] = points_D2[:, side].sum()
            drawn[:, i, j] = pool_D2[:, side][chosen_BD].sum(1)
    rating_P = fit_ratings(total)[0]
    low_P, high_P = np.percentile(fit_ratings(drawn), [2.5, 97.5], axis=0)
    return [
        {"rating": float(r), "low": float(low), "high": float(high)}
        for r, low, high in zip(rating_P, low_P, high_P, strict=True)
    ]
