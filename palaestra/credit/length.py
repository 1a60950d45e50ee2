"""Lengths as part of the reward, and the shortest right answer as an example."""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from palaestra.credit.table import Table, Values
from palaestra.types import SOLVED_TOTAL, Example, Groups, Signals, State, stage


def shortness(length_N: np.ndarray, right_N: np.ndarray) -> np.ndarray:
    """lambda = .5 - (len - min) / (max - min) over one group; wrong answers get min(0, lambda);
    equal lengths give 0.
    """
    spread = np.ptp(length_N) if len(length_N) else 0
    if not spread:
        return np.zeros(len(length_N))
    lambda_N = 0.5 - (length_N - length_N.min()) / spread
    return np.where(right_N, lambda_N, np.minimum(0.0, lambda_N))


@stage
class LengthReward:
    """x + weight * `shortness` within the group, muted and wrong answers included
    (arXiv:2501.12599, 2.3.3).

    A weight of 0 at first, then a constant, lets the policy become accurate before it becomes
    brief: give it a `Jump`.
    """

    weight: float = 1.0
    spreads: ClassVar[bool] = True

    def __call__(self, x: Values, table: Table) -> Values:
        x, bonus_E = table.lift(x, "episode"), np.zeros(len(table.episodes))
        for g in np.unique(table.group_E):
            mine = table.group_E == g
            bonus_E[mine] = shortness(table.lengths_E[mine], table.reward_E[mine] >= SOLVED_TOTAL)
        return Values(level="episode", x_N=x.x_N + self.weight * bonus_E)


@stage
class Shortest:
    """The shortest right answer of each group, the first of several: to imitate, or (`pairs`) to
    prefer.

    Rejected is every longer answer that is wrong, or right and at least `factor` times as long
    (arXiv:2501.12599, 2.4). Groups without a right answer give nothing. Column `sign`; rows of a
    pair are a unit.
    """

    pairs: bool = False
    factor: float = 1.5

    def __call__(
        self, groups: Groups, signals: Signals, state: State
    ) -> tuple[list[Example], State]:
        table = Table(groups, signals, state)
        found: list[Example] = []
        for g in np.unique(table.group_E):
            mine = np.flatnonzero((table.group_E == g) & [not e.muted for e in table.episodes])
            right = [int(e) for e in mine if table.reward_E[e] >= SOLVED_TOTAL]
            if not right:
                continue
            best = min(right, key=lambda e: table.lengths_E[e])
            if not self.pairs:
                found += rows(table, best, 1.0, "")
                continue
            short = table.lengths_E[best]
            for e in mine:
                least = self.factor * short if e in right else short
                if e != best and table.lengths_E[e] >= least and table.lengths_E[e] > short:
                    found += rows(table, best, 1.0, f"pair {e}") + rows(
                        table, int(e), -1.0, f"pair {e}"
                    )
        return found, table.state


def rows(table: Table, e: int, sign: float, unit: str) -> list[Example]:
    """Rows of an episode, with its signals."""
    return [
        Example(row=row, columns={"sign": sign, **table.signals[e][r]}, unit=unit)
        for r, row in enumerate(table.episodes[e].rows)
    ]
