"""Lengths as part of the reward."""

from __future__ import annotations

import numpy as np

from palaestra.credit.table import Table, Values
from palaestra.types import stage

RIGHT = 1 - 1e-9  # a total reward from here on counts as solved


def shortness(length_N: np.ndarray, right_N: np.ndarray) -> np.ndarray:
    """lambda = .5 - (len - min) / (max - min) over one group; wrong answers get min(0, lambda); equal lengths give 0."""
    spread = np.ptp(length_N) if len(length_N) else 0
    if not spread:
        return np.zeros(len(length_N))
    lambda_N = 0.5 - (length_N - length_N.min()) / spread
    return np.where(right_N, lambda_N, np.minimum(0.0, lambda_N))


@stage
class LengthReward:
    """x + weight * `shortness` within the group, muted and wrong answers included (arXiv:2501.12599, 2.3.3).

    A weight of 0 at first, then a constant, lets the policy become accurate before it becomes brief: give it a `Jump`.
    """

    weight: float = 1.0

    def __call__(self, x: Values, table: Table) -> Values:
        x, bonus_E = table.lift(x, "episode"), np.zeros(len(table.episodes))
        for g in np.unique(table.group_E):
            mine = table.group_E == g
            bonus_E[mine] = shortness(table.lengths_E[mine], table.reward_E[mine] >= RIGHT)
        return Values(level="episode", x_N=x.x_N + self.weight * bonus_E)
