"""Scopes: who is compared with whom. A link takes means, deviations and ranks over the observations
that share a key.
"""

from __future__ import annotations

import difflib
from collections import Counter
from collections.abc import Callable, Hashable, Sequence
from typing import Any, Literal, Protocol, TypeAlias, get_args, runtime_checkable

import numpy as np

from palaestra.credit.table import Level, Table, Values, fact_by_turn
from palaestra.errors import UserError
from palaestra.types import stage


@runtime_checkable
class Grouping(Protocol):
    """A scope with a rule of its own, e.g. turns that start in the same state: integers as those of
    `scope_keys`.
    """

    def keys(self, table: Table, level: Level) -> np.ndarray: ...


NamedScope: TypeAlias = Literal[
    "group", "batch", "episode", "position", "domain", "state", "stratum", "agent"
]
# the callable: a key of (table, episode)
Scope: TypeAlias = NamedScope | Callable[[Table, int], Hashable] | Grouping


def scope_keys(table: Table, scope: Scope, level: Level = "episode") -> np.ndarray:
    """[N] integers: observations with equal numbers are compared with one another.

    "group": one task's episodes; "batch": all; "episode": one episode; "position": same turn number
    of one task; "domain": tasks of one domain; "agent": one task's episodes of the same agent, by
    the fact "agent", else by the seat; "state" and "stratum": `SameState()` and `Stratum()`. A
    callable maps (table, episode) to a key, a `Grouping` numbers them itself.
    """
    if scope in ("state", "stratum"):
        scope = SameState() if scope == "state" else Stratum()
    if isinstance(scope, Grouping):
        return scope.keys(table, level)
    at = table.index(level)
    if scope == "batch":
        return np.zeros(len(at.episode_N), np.int64)
    if scope == "episode":
        return at.episode_N
    if scope == "group":
        return table.group_E[at.episode_N]
    if scope == "position":
        return number_keys(
            list(zip(table.group_E[at.episode_N].tolist(), at.turn_N.tolist(), strict=True))
        )
    if scope == "domain":
        return number_keys([table.group(int(e)).task.domain for e in at.episode_N])
    if scope == "agent":
        scope = agent
    if not callable(scope):
        raise UserError(f"unknown scope {scope!r}; there are {', '.join(get_args(NamedScope))}")
    return number_keys([scope(table, int(e)) for e in at.episode_N])


def number_keys(keys: Sequence[Hashable]) -> np.ndarray:
    """[N] integers: equal keys have equal numbers."""
    number = {k: i for i, k in enumerate(dict.fromkeys(keys))}
    return np.array([number[k] for k in keys], np.int64)


def agent(table: Table, episode: int) -> tuple[int, Hashable]:
    """The task and who acted: the fact "agent", else the seat of the first trained row."""
    e = table.episodes[episode]
    seats = (
        row.seat
        for row, view in zip(e.rows, table.views[episode], strict=True)
        if view.trained_T.any()
    )
    return int(table.group_E[episode]), e.facts.get("agent", next(seats, ""))


@stage
class SameState:
    """The scope of turns that start in the same state of the same task, whoever's turn they are
    (GiGPO's anchor states).

    All episodes of a task start in one state, so a world without state keys has one anchor.
    `similarity` below 1 joins a state to the first earlier one whose text has at least this difflib
    ratio to it.
    """

    similarity: float = 1.0

    def keys(self, table: Table, level: Level) -> np.ndarray:
        if level != "turn":
            raise UserError(
                f"states are compared by turn, not by {level}; set level=turn, or put TurnReturns "
                "before"
            )
        states = fact_by_turn(table, "states", first="start")
        groups = table.group_E[table.turns.episode_N].tolist()
        if self.similarity >= 1:
            return number_keys([(g, str(s)) for g, s in zip(groups, states, strict=True)])
        anchors: dict[int, list[str]] = {}
        return number_keys(
            [
                (g, anchor(str(s), anchors.setdefault(g, []), self.similarity))
                for g, s in zip(groups, states, strict=True)
            ]
        )


def anchor(state: str, anchors: list[str], similarity: float) -> int:
    """The number of the first anchor that is similar enough; a state like no other becomes an
    anchor.
    """
    for i, known in enumerate(anchors):
        if difflib.SequenceMatcher(None, state, known).ratio() >= similarity:
            return i
    anchors.append(state)
    return len(anchors) - 1


@stage
class Stratum:
    """The scope of a task's episodes that share a structural key: the fact `fact`, else their
    number of turns but the last.

    A fact "stratum" goes before. With `fact=""` that alone counts, and who has none is in 0.
    """

    fact: str = "searches"

    @property
    def names_facts(self) -> tuple[str, ...]:
        """A name of one's own; the default one has the number of turns in its place."""
        return (self.fact,) if self.fact not in ("", type(self).fact) else ()

    def keys(self, table: Table, level: Level) -> np.ndarray:
        """[N] a number for each stratum; how many a group has beside the first is tracked."""
        own = [self.key(table, e) for e in range(len(table.episodes))]
        strata = Counter(group for group, _ in set(own))
        beside_E = np.array([strata[group] - 1 for group, _ in own], float)
        table.track("strata", Values(level="episode", x_N=beside_E))
        return number_keys([own[e] for e in table.index(level).episode_N.tolist()])

    def key(self, table: Table, episode: int) -> tuple[int, Any]:
        """The group of an episode, and its structural key."""
        facts = table.episodes[episode].facts
        if not self.fact:
            return int(table.group_E[episode]), facts.get("stratum", 0)
        calls = int(np.sum(table.turns.episode_N == episode)) - 1
        return int(table.group_E[episode]), facts.get("stratum", facts.get(self.fact, calls))
