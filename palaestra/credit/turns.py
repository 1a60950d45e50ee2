"""Credit by turn: what each action of an episode earned, and which actions are comparable. N =
turns of all episodes.
"""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from palaestra.credit.advantages import discounted_sums
from palaestra.credit.gae import token_rewards
from palaestra.credit.links import Chain, Link, check_values
from palaestra.credit.scopes import Scope, scope_keys
from palaestra.credit.table import LEVELS, Table, Values, fact_by_turn
from palaestra.types import stage


@stage
class Blend:
    """sum_k weight_k * chain_k(x): several credits of the same values, added at the finest level
    among them.
    """

    parts: tuple[tuple[float, tuple[Link, ...]], ...]

    @property
    def spreads(self) -> bool:
        return any(Chain(links).keeps_equal for _, links in self.parts)

    def __call__(self, x: Values, table: Table) -> Values:
        estimates: list[Values] = []
        for _, links in self.parts:
            y = x
            for link in links:
                y = check_values(link, link(y, table), table)
            estimates.append(y)
        level = LEVELS[max(LEVELS.index(y.level) for y in estimates)]
        weighted = [
            w * table.lift(y, level).x_N for (w, _), y in zip(self.parts, estimates, strict=True)
        ]
        return Values(level=level, x_N=np.sum(weighted, axis=0))


def turn_rewards(table: Table) -> np.ndarray:
    """[N] what was paid during or right after each turn; what no event explains of an episode's
    total, at its last turn.
    """
    turn, at = table.turns, table.tokens
    number = {k: i for i, k in enumerate(zip(turn.episode_N, turn.row_N, turn.turn_N, strict=True))}
    where = [number[k] for k in zip(at.episode_N, at.row_N, at.turn_N, strict=True)]
    return np.bincount(
        np.array(where, np.int64), token_rewards(table), minlength=len(turn.episode_N)
    )


def discounted_turn_sums(table: Table, x_N: np.ndarray, gamma: float) -> np.ndarray:
    """[N] sum_{k>=t} gamma^{k-t} x_k over the turns of each episode.

    Args:
        table: the batch, whose turns are counted.
        x_N: a number for each of its N turns.
        gamma: the discount a turn, in [0, 1].
    """
    out = np.zeros(len(x_N))
    for e in range(len(table.episodes)):
        mine = np.flatnonzero(table.turns.episode_N == e)
        out[mine] = discounted_sums(x_N[mine], gamma)
    return out


@stage
class TurnReturns:
    """Reward to go: R_t = sum_{k>=t} gamma^{k-t} r_k of the turns, from their own rewards (what
    came in is replaced).
    """

    gamma: float = 0.95
    spreads: ClassVar[bool] = True  # the same outcome earlier is worth more

    def __call__(self, x: Values, table: Table) -> Values:
        return Values(
            level="turn", x_N=discounted_turn_sums(table, turn_rewards(table), self.gamma)
        )


@stage
class Executed:
    """x_t - penalty for every turn whose action the world did not execute (the fact "executed", one
    truth value a turn).
    """

    penalty: float = 0.1

    @property
    def weighs_fact(self) -> str:
        return "executed" if self.penalty else ""

    def __call__(self, x: Values, table: Table) -> Values:
        done_N = np.array(fact_by_turn(table, "executed", default=True), bool)
        return Values(level="turn", x_N=table.lift(x, "turn").x_N - self.penalty * ~done_N)


@stage
class Peers:
    """Leaves the column `name`: how many observations of the scope each turn is compared with,
    itself included.
    """

    scope: Scope
    name: str = "peers"

    def __call__(self, x: Values, table: Table) -> Values:
        key_N = scope_keys(table, self.scope, "turn")
        table.add_column(
            self.name, Values(level="turn", x_N=np.bincount(key_N)[key_N].astype(float))
        )
        return x
