"""Credit by turn: what each action of an episode earned, and which actions are comparable. N = turns of all episodes."""

from __future__ import annotations

import difflib
from typing import Any, ClassVar

import numpy as np

from palaestra.credit.advantages import discounted_sums
from palaestra.credit.links import Chain, Link, token_rewards
from palaestra.credit.table import LEVELS, Level, Scope, Table, Values, numbered
from palaestra.types import UserError, stage


@stage
class Blend:
    """sum_k weight_k * chain_k(x): several credits of the same values, added at the finest level among them."""

    parts: tuple[tuple[float, tuple[Link, ...]], ...]

    @property
    def spreads(self) -> bool:
        return any(Chain(links).keeps_equal for _, links in self.parts)

    def __call__(self, x: Values, table: Table) -> Values:
        found: list[Values] = []
        for _, links in self.parts:
            y = x
            for link in links:
                y = link(y, table)
            found.append(y)
        level = LEVELS[max(LEVELS.index(y.level) for y in found)]
        weighted = [w * table.lift(y, level).x_N for (w, _), y in zip(self.parts, found, strict=True)]
        return Values(level=level, x_N=np.sum(weighted, axis=0))


def turn_rewards(table: Table) -> np.ndarray:
    """[N] what was paid during or right after each turn; what no event explains of an episode's total, at its last turn."""
    turn, at = table.turns, table.tokens
    number = {k: i for i, k in enumerate(zip(turn.episode_N, turn.row_N, turn.turn_N, strict=True))}
    where = [number[k] for k in zip(at.episode_N, at.row_N, at.turn_N, strict=True)]
    return np.bincount(np.array(where, np.int64), token_rewards(table), minlength=len(turn.episode_N))


def by_episode(table: Table, x_N: np.ndarray, gamma: float) -> np.ndarray:
    """[N] sum_{k>=t} gamma^{k-t} x_k over the turns of each episode."""
    out = np.zeros(len(x_N))
    for e in range(len(table.episodes)):
        mine = np.flatnonzero(table.turns.episode_N == e)
        out[mine] = discounted_sums(x_N[mine], gamma)
    return out


@stage
class TurnReturns:
    """Reward to go: R_t = sum_{k>=t} gamma^{k-t} r_k of the turns, from their own rewards (what came in is replaced)."""

    gamma: float = 0.95
    spreads: ClassVar[bool] = True  # the same outcome earlier is worth more

    def __call__(self, x: Values, table: Table) -> Values:
        return Values(level="turn", x_N=by_episode(table, turn_rewards(table), self.gamma))


def fact_by_turn(table: Table, name: str, default: Any = None, first: Any = None) -> list[Any]:
    """[N] a fact that an episode holds per turn number; where it is missing or too short, a default, for turn 0 `first`.

    Raises UserError where there is neither.
    """
    found: list[Any] = []
    for e, n in zip(table.turns.episode_N.tolist(), table.turns.turn_N.tolist(), strict=True):
        held = table.episodes[e].facts.get(name)
        if held is not None and n < len(held):
            found.append(held[n])
        elif default is not None or (first is not None and n == 0):
            found.append(first if default is None else default)
        else:
            g, i = table.where[e]
            raise UserError(
                f"trajectory {i} of group {g} has no {name!r} for its turn {n}; give one value a turn "
                f"(in a world: the state_key of its frames, or the fact {name!r})"
            )
    return found


@stage
class Executed:
    """x_t - penalty for every turn whose action the world did not execute (the fact "executed", one truth value a turn)."""

    penalty: float = 0.1

    def __call__(self, x: Values, table: Table) -> Values:
        done_N = np.array(fact_by_turn(table, "executed", default=True), bool)
        return Values(level="turn", x_N=table.lift(x, "turn").x_N - self.penalty * ~done_N)


@stage
class SameState:
    """The scope of turns that start in the same state of the same task, whoever's turn they are (GiGPO's anchor states).

    All episodes of a task start in one state, so a world without state keys has one anchor. `similarity` below 1 joins a state
    to the first earlier one whose text has at least this difflib ratio to it.
    """

    similarity: float = 1.0

    def keys(self, table: Table, level: Level) -> np.ndarray:
        if level != "turn":
            raise UserError(f"states are compared by turn, not by {level}; set level=turn, or put TurnReturns before")
        states = fact_by_turn(table, "states", first="start")
        groups = table.group_E[table.turns.episode_N].tolist()
        if self.similarity >= 1:
            return numbered([(g, str(s)) for g, s in zip(groups, states, strict=True)])
        anchors: dict[int, list[str]] = {}
        return numbered(
            [
                (g, anchor(str(s), anchors.setdefault(g, []), self.similarity))
                for g, s in zip(groups, states, strict=True)
            ]
        )


def anchor(state: str, anchors: list[str], similarity: float) -> int:
    """The number of the first anchor that is similar enough; a state like no other becomes an anchor."""
    for i, known in enumerate(anchors):
        if difflib.SequenceMatcher(None, state, known).ratio() >= similarity:
            return i
    anchors.append(state)
    return len(anchors) - 1


@stage
class Peers:
    """Leaves the column `name`: how many observations of the scope each turn is compared with, itself included."""

    scope: Scope
    name: str = "peers"

    def __call__(self, x: Values, table: Table) -> Values:
        key_N = table.keys(self.scope, "turn")
        table.columns[self.name] = Values(level="turn", x_N=np.bincount(key_N)[key_N].astype(float))
        return x


@stage
class Stratum:
    """The scope of a task's episodes that share a structural key: the fact `fact`, else their number of turns but the last.

    A fact "stratum" goes before.
    """

    fact: str = "searches"

    def __call__(self, table: Table, episode: int) -> tuple[int, Any]:
        facts = table.episodes[episode].facts
        calls = int(np.sum(table.turns.episode_N == episode)) - 1
        return int(table.group_E[episode]), facts.get("stratum", facts.get(self.fact, calls))
