"""The best joint play of a small game in which a team shares one reward, by value iteration.

    V_0(s) = 0        V_n(s) = max over joint moves m of Q_n(s, m)
    Q_n(s, m) = sum over outcomes of chance * (pay_n if it ends won, 0 if lost, else V_{n-1}(next))

with n turns left. A joint controller moves all seats together, so V is the most that players who
choose apart can reach.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np

from palaestra.types import value_class

Moves: TypeAlias = tuple[str, ...]  # of the seats, in their order
EPSILON = 1e-9


@value_class
class TeamOutcome:
    """What a joint move may lead to: with that chance the place `then`, or an end. won: None = the
    game goes on.
    """

    chance: float
    then: Any
    won: bool | None = None


@dataclass(frozen=True, eq=False)
class JointPlan:
    """The values of all places that a start leads to; build it with `joint_plan`.

    Args:
        index: the number of a place.
        moves: by place, its joint moves.
        Q_nM: values with n turns left, n from 0, of all joint moves of all places in one row.
        first: by place, where its moves begin in that row.
    """

    index: dict[Any, int]
    moves: list[tuple[Moves, ...]]
    Q_nM: np.ndarray
    first: np.ndarray

    def value(self, place: Any, left: int) -> float:
        """V_left of a place."""
        return float(self._of(place)[left].max())

    def best(self, place: Any, left: int) -> list[Moves]:
        """The joint moves of the greatest value; of these, the ones that get there soonest: whose
        values with fewer turns left sum to the most.
        """
        Q_nm = self._of(place)[: left + 1]
        top = Q_nm[left] > Q_nm[left].max() - EPSILON
        sooner = np.where(top, Q_nm.sum(0), -np.inf)
        moves = self.moves[self.index[place]]
        return [m for m, x in zip(moves, sooner, strict=True) if x > sooner.max() - EPSILON]

    def _of(self, place: Any) -> np.ndarray:
        i = self.index[place]
        at = int(self.first[i])
        return self.Q_nM[:, at : at + len(self.moves[i])]


def joint_plan(
    start: Hashable,
    joint_moves: Callable[[Any], Sequence[Moves]],
    outcomes: Callable[[Any, Moves], Iterable[TeamOutcome]],
    pays: Sequence[float],
) -> JointPlan:
    """Solves a game.

    Args:
        start: the place where it begins.
        joint_moves: of a place.
        outcomes: of a place and a joint move.
        pays: what a win is worth in the last turn, the one before it, and so on; as many as there
            are turns.
    """
    index, moves = {start: 0}, list[tuple[Moves, ...]]()
    to, chance, wins, of = list[int](), list[float](), list[bool](), list[int]()
    places, n_moves = [start], 0
    for place in places:  # grows while places are found
        moves.append(tuple(joint_moves(place)))
        for m in moves[-1]:
            for x in outcomes(place, m):
                if x.won is None and x.then not in index:
                    index[x.then] = len(places)
                    places.append(x.then)
                to.append(-1 if x.won is not None else index[x.then])
                chance.append(x.chance)
                wins.append(x.won is True)
                of.append(n_moves)
            n_moves += 1
    first = np.cumsum([0, *map(len, moves[:-1])])
    to_O, chance_O, won_O, of_O = map(np.array, (to, chance, wins, of))
    value_P: np.ndarray = np.zeros(len(places) + 1)  # the last is 0: an end
    rows: list[np.ndarray] = [np.zeros(n_moves)]
    for pay in pays:
        Q_M = np.bincount(of_O, chance_O * np.where(won_O, pay, value_P[to_O]), n_moves)
        value_P = np.concatenate([np.maximum.reduceat(Q_M, first), np.zeros(1)])
        rows.append(Q_M)
    return JointPlan(index, moves, np.stack(rows), first)
