"""Flat views of a batch of groups: what advantages are computed on.

A `Table` lists the valid episodes (muted ones included: they count in the statistics). A `Values` holds one number per
observation of a level: an episode, a turn of an episode, or a trained token.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from functools import cached_property
from typing import Any, Literal, Protocol, TypeAlias, get_args, runtime_checkable

import numpy as np

from palaestra.credit.seats import by_seat
from palaestra.types import Episode, Group, Groups, Signals, State, UserError, View, value

Level: TypeAlias = Literal["episode", "turn", "token"]
LEVELS: tuple[Level, ...] = ("episode", "turn", "token")


@runtime_checkable
class Grouping(Protocol):
    """A scope with a rule of its own, e.g. turns that start in the same state: integers as those of `Table.keys`."""

    def keys(self, table: Table, level: Level) -> np.ndarray: ...


Named: TypeAlias = Literal["group", "batch", "episode", "position", "domain", "state", "stratum", "agent"]
Scope: TypeAlias = Named | Callable[["Table", int], Hashable] | Grouping  # the callable: a key of (table, episode)


def numbered(found: Sequence[Hashable]) -> np.ndarray:
    """[N] integers: equal keys have equal numbers."""
    number = {k: i for i, k in enumerate(dict.fromkeys(found))}
    return np.array([number[k] for k in found], np.int64)


@value
class Values:
    """x_N: one float per observation of `level`, in the table's order."""

    level: Level
    x_N: np.ndarray


@value
class Index:
    """Where each of N observations is: episode, row within the episode, turn, position in the row's training view."""

    episode_N: np.ndarray
    row_N: np.ndarray
    turn_N: np.ndarray
    position_N: np.ndarray


class Table:
    """Valid episodes of several groups, flat. `state` is the credit's own, copied: a link may write to it.

    An episode of several seats that are paid and trained is here once for each of them (`seats.by_seat`).
    """

    def __init__(self, groups: Groups, signals: Signals, state: State):
        groups, signals = by_seat(groups, signals)
        self.groups: Groups = groups
        self.state: State = dict(state)
        self.columns: dict[str, Values] = {}  # beside the advantage: what links leave for the objective
        self.where: list[tuple[int, int]] = [
            (g, e) for g, group in enumerate(groups) for e, ep in enumerate(group.episodes) if ep.ok
        ]
        self.episodes: list[Episode] = [groups[g].episodes[e] for g, e in self.where]
        self.signals: list[list[dict[str, np.ndarray]]] = [
            signals[g][e] if signals else [{} for _ in ep.rows]
            for (g, e), ep in zip(self.where, self.episodes, strict=True)
        ]
        self.group_E = np.array([g for g, _ in self.where], np.int64)
        self.reward_E = np.array([ep.total for ep in self.episodes], np.float64)

    def group(self, episode: int) -> Group:
        return self.groups[int(self.group_E[episode])]

    def agent(self, episode: int) -> Hashable:
        """Who acted: the fact "agent", else the seat of the first trained row."""
        e = self.episodes[episode]
        seats = (row.seat for row, view in zip(e.rows, self.views[episode], strict=True) if view.trained_T.any())
        return e.facts.get("agent", next(seats, ""))

    @cached_property
    def views(self) -> list[list[View]]:
        return [[row.view() for row in ep.rows] for ep in self.episodes]

    @cached_property
    def tokens(self) -> Index:
        """Every trained token; the first token of a row has no log-prob and is never one."""
        found = [
            (e, r, int(view.turn_T[t]), int(t))
            for e, rows in enumerate(self.views)
            for r, view in enumerate(rows)
            for t in np.flatnonzero(view.trained_T)
            if t > 0
        ]
        return Index(
            **dict(
                zip(
                    ("episode_N", "row_N", "turn_N", "position_N"),
                    np.array(found, np.int64).reshape(-1, 4).T,
                    strict=True,
                )
            )
        )

    @cached_property
    def turns(self) -> Index:
        """Every (episode, row, turn) with a trained token; `position` is its last one."""
        t = self.tokens
        last: dict[tuple[int, int, int], int] = {}
        for e, r, u, p in zip(t.episode_N, t.row_N, t.turn_N, t.position_N, strict=True):
            last[int(e), int(r), int(u)] = int(p)
        rows = np.array([(*k, p) for k, p in last.items()], np.int64).reshape(-1, 4).T
        return Index(**dict(zip(("episode_N", "row_N", "turn_N", "position_N"), rows, strict=True)))

    @cached_property
    def lengths_E(self) -> np.ndarray:
        """Trained tokens of each episode."""
        return np.bincount(self.tokens.episode_N, minlength=len(self.episodes))

    def index(self, level: Level) -> Index:
        if level == "token":
            return self.tokens
        if level == "turn":
            return self.turns
        e = np.arange(len(self.episodes))
        return Index(episode_N=e, row_N=np.zeros_like(e), turn_N=np.zeros_like(e), position_N=np.zeros_like(e))

    def lift(self, values: Values, level: Level) -> Values:
        """The same numbers at a finer level; every turn or token repeats what it belongs to. Never to a coarser one."""
        if LEVELS.index(level) < LEVELS.index(values.level):
            raise UserError(f"credit by {values.level} cannot become credit by {level}; it only gets finer")
        if level == values.level:
            return values
        to = self.index(level)
        if values.level == "episode":
            return Values(level=level, x_N=values.x_N[to.episode_N])
        t = self.turns
        number = {k: i for i, k in enumerate(zip(t.episode_N, t.row_N, t.turn_N, strict=True))}
        at = [number[k] for k in zip(to.episode_N, to.row_N, to.turn_N, strict=True)]
        return Values(level=level, x_N=values.x_N[at])

    def keys(self, scope: Scope, level: Level = "episode") -> np.ndarray:
        """[N] integers: observations with equal numbers are compared with one another.

        "group": one task's episodes; "batch": all; "episode": one episode; "position": same turn number of one task;
        "domain": tasks of one domain; "agent": one task's episodes of the same agent, by the fact "agent", else by the seat;
        "state" and "stratum": `turns.SameState()` and `turns.Stratum()`. A callable maps (table, episode) to a key, a
        `Grouping` numbers them itself.
        """
        if scope in ("state", "stratum"):
            from palaestra.credit.turns import SameState, Stratum  # which build on this module

            scope = SameState() if scope == "state" else Stratum()
        if isinstance(scope, Grouping):
            return scope.keys(self, level)
        at = self.index(level)
        if scope == "batch":
            return np.zeros(len(at.episode_N), np.int64)
        if scope == "episode":
            return at.episode_N
        if scope == "group":
            return self.group_E[at.episode_N]
        if scope == "position":
            found: list[Any] = list(zip(self.group_E[at.episode_N].tolist(), at.turn_N.tolist(), strict=True))
        elif scope == "domain":
            found = [self.group(int(e)).task.domain for e in at.episode_N]
        elif scope == "agent":
            found = [(int(self.group_E[e]), self.agent(int(e))) for e in at.episode_N]
        elif callable(scope):
            found = [scope(self, int(e)) for e in at.episode_N]
        else:
            raise UserError(f"unknown scope {scope!r}; there are {', '.join(get_args(Named))}")
        return numbered(found)
