"""Lengths as part of the reward, and the shortest right answer as an example."""

from __future__ import annotations

from dataclasses import replace
from typing import ClassVar, Self

import numpy as np

from palaestra.credit.table import Table, Values
from palaestra.schedule import check_bounds
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


def length_terms(
    reward_N: np.ndarray, length_N: np.ndarray, full: float, a: float, b: float
) -> np.ndarray:
    """What UI-R1-E adds to the rewards of one group, by their lengths in tokens.

    With p the share of full rewards, L_r the mean length of these (0 where there is none) and L_max
    the longest of all: L_b = p L_r + (1 - p) L_max, l = (L - L_b) / L_b; max(a l + b, 0.1) for a
    full reward, min(0.9 l - 0.1, -0.1) for the others.
    """
    right_N = reward_N >= full - 1e-9
    p = right_N.mean()
    mean_right = length_N[right_N].mean() if right_N.any() else 0.0
    bound = p * mean_right + (1 - p) * length_N.max()
    l_N = (length_N - bound) / max(bound, 1.0)
    return np.where(right_N, np.maximum(a * l_N + b, 0.1), np.minimum(0.9 * l_N - 0.1, -0.1))


@stage
class AdaptiveLength:
    """x + `length_terms` within the group, muted answers included: brevity pays where a group is
    mostly right, length where it is mostly wrong (lll6gg/UI-R1, stage 1 of UI-R1-E).

    `full` is the highest reward.
    """

    full: float = 1.0
    a: float = -0.5
    b: float = 0.5
    spreads: ClassVar[bool] = True

    def __call__(self, x: Values, table: Table) -> Values:
        x, term_E = table.lift(x, "episode"), np.zeros(len(table.episodes))
        for g in np.unique(table.group_E):
            mine = table.group_E == g
            reward, length = table.reward_E[mine], table.lengths_E[mine]
            term_E[mine] = length_terms(reward, length, self.full, self.a, self.b)
        return Values(level="episode", x_N=x.x_N + term_E)


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
        reward_E = self.weight * bonus_E
        table.track("length_reward", Values(level="episode", x_N=np.abs(reward_E)))
        return Values(level="episode", x_N=x.x_N + reward_E)


@stage
class Overlong:
    """x - the soft punishment of overlong answers, muted ones included (DAPO, arXiv:2503.14476 eq.
    13): 0 up to length - cache tokens, then rising to 1 at `length` tokens, and 1 beyond.

    It counts after the gate for equal rewards, which in DAPO looks at the accuracy alone. With
    `share` the length is the run's longest answer, and the cache that share of it.
    """

    length: float = 64
    cache: float = 12.8
    share: float = 0.0

    def __post_init__(self) -> None:
        check_bounds("Overlong.length", self.length, above=0)
        check_bounds("Overlong.cache", self.cache, above=0)
        check_bounds("Overlong.share", self.share, least=0, most=1)

    def fit_to_run(self, prompts: int, max_tokens: int) -> Self:
        """With `share` both numbers follow the run's longest answer."""
        if not self.share:
            return self
        return replace(self, length=max_tokens, cache=self.share * max_tokens)

    def __call__(self, x: Values, table: Table) -> Values:
        x = table.lift(x, "episode")
        over_E = (table.lengths_E - (self.length - self.cache)) / self.cache
        punishment_E = np.clip(over_E, 0.0, 1.0)
        table.track("overlong", Values(level="episode", x_N=punishment_E))
        return Values(level="episode", x_N=x.x_N - punishment_E)


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
    right: float | None = None  # the total from which on an answer is; None = the reward says it
    reads_right: ClassVar[bool] = True

    def __call__(
        self, groups: Groups, signals: Signals, state: State
    ) -> tuple[list[Example], State]:
        table = Table(groups, signals, state)
        examples: list[Example] = []
        right_E = table.right_E(self.right)
        for g in np.unique(table.group_E):
            mine = np.flatnonzero((table.group_E == g) & [not e.muted for e in table.episodes])
            right = [int(e) for e in mine if right_E[e]]
            if not right:
                continue
            best = min(right, key=lambda e: table.lengths_E[e])
            if not self.pairs:
                examples += rows(table, best, 1.0, "")
                continue
            short = table.lengths_E[best]
            for e in mine:
                least = self.factor * short if e in right else short
                if e != best and table.lengths_E[e] >= least and table.lengths_E[e] > short:
                    examples += rows(table, best, 1.0, f"pair {e}") + rows(
                        table, int(e), -1.0, f"pair {e}"
                    )
        return examples, table.state


def rows(table: Table, e: int, sign: float, unit: str) -> list[Example]:
    """Rows of an episode, with its signals."""
    return [
        Example(row=row, columns={"sign": sign, **table.signals[e][r]}, unit=unit)
        for r, row in enumerate(table.episodes[e].rows)
    ]
