"""Flat views of a batch of groups: what advantages are computed on.

A `Table` lists the valid episodes (muted ones included: they count in the statistics). A `Values`
holds one number per observation of a level: an episode, a turn of an episode, or a trained token.
"""

from __future__ import annotations

from dataclasses import replace
from functools import cached_property
from typing import Any, Literal, TypeAlias

import numpy as np

from palaestra.credit.seats import split_by_seat
from palaestra.errors import UserError
from palaestra.types import (
    TRACK_PREFIX,
    Episode,
    Group,
    Groups,
    Signals,
    State,
    View,
    value_class,
)

Level: TypeAlias = Literal["episode", "turn", "token"]
LEVELS: tuple[Level, ...] = ("episode", "turn", "token")


@value_class
class Values:
    """x_N: one float per observation of `level`, in the table's order."""

    level: Level
    x_N: np.ndarray


@value_class
class Index:
    """Where each of N observations is: episode, row within the episode, turn, position in the row's
    training view.
    """

    episode_N: np.ndarray
    row_N: np.ndarray
    turn_N: np.ndarray
    position_N: np.ndarray


class Table:
    """Valid episodes of several groups, flat. `state` is the credit's own, copied.

    A link returns values. What else it leaves, it leaves by a call: `mute`, `add_column`,
    `track`, `remember`.

    An episode of several seats that are paid and trained is here once for each of them
    (`seats.split_by_seat`).
    """

    def __init__(self, groups: Groups, signals: Signals, state: State):
        groups, signals = split_by_seat(groups, signals)
        self.groups: Groups = groups
        self.state: State = dict(state)
        # beside the advantage: what links leave for the objective
        self.columns: dict[str, Values] = {}
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

    def right_E(self, right: float | None = None) -> np.ndarray:
        """[E] Whether each answer is right, see `Episode.is_right`."""
        return np.array([ep.is_right(right) for ep in self.episodes], np.bool_)

    def mute(self, episode: int) -> None:
        """From here on the episode counts in the statistics and trains nothing."""
        self.episodes[episode] = replace(self.episodes[episode], muted=True)

    def add_column(self, name: str, values: Values) -> None:
        """Leaves a number for each token beside the advantage, which the objective reads by name."""
        self.columns[name] = values

    def track(self, name: str, values: Values) -> None:
        """Logs the mean over the trained tokens of the batch as a number of the step. The objective
        does not read it.
        """
        self.columns[f"{TRACK_PREFIX}{name}"] = values

    def remember(self, name: str, value: Any) -> None:
        """Keeps something for the credit of the next step."""
        self.state[name] = value

    def group(self, episode: int) -> Group:
        return self.groups[int(self.group_E[episode])]

    @cached_property
    def views(self) -> list[list[View]]:
        return [[row.view() for row in ep.rows] for ep in self.episodes]

    @cached_property
    def tokens(self) -> Index:
        """Every trained token; the first token of a row has no log-prob and is never one."""
        every = [(e, r, v) for e, rows in enumerate(self.views) for r, v in enumerate(rows)]
        if not every:
            none = np.zeros(0, np.int64)
            return Index(episode_N=none, row_N=none, turn_N=none, position_N=none)
        length_R = np.array([len(v.ids_T) for *_, v in every])
        position = np.arange(length_R.sum()) - np.repeat(np.cumsum(length_R) - length_R, length_R)
        on = np.concatenate([v.trained_T for *_, v in every]) & (position > 0)
        row_N = np.repeat(np.arange(len(every)), length_R)[on]
        return Index(
            episode_N=np.array([e for e, *_ in every])[row_N],
            row_N=np.array([r for _, r, _ in every])[row_N],
            turn_N=np.concatenate([v.turn_T for *_, v in every])[on],
            position_N=position[on],
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
        return Index(
            episode_N=e,
            row_N=np.zeros_like(e),
            turn_N=np.zeros_like(e),
            position_N=np.zeros_like(e),
        )

    def lift(self, values: Values, level: Level) -> Values:
        """The same numbers at a finer level; every turn or token repeats what it belongs to. Never
        to a coarser one.
        """
        if LEVELS.index(level) < LEVELS.index(values.level):
            raise UserError(
                f"credit by {values.level} cannot become credit by {level}; it only gets finer"
            )
        if level == values.level:
            return values
        to = self.index(level)
        if values.level == "episode":
            return Values(level=level, x_N=values.x_N[to.episode_N])
        t = self.turns
        number = {k: i for i, k in enumerate(zip(t.episode_N, t.row_N, t.turn_N, strict=True))}
        at = [number[k] for k in zip(to.episode_N, to.row_N, to.turn_N, strict=True)]
        return Values(level=level, x_N=values.x_N[at])


def fact_by_turn(table: Table, name: str, default: Any = None, first: Any = None) -> list[Any]:
    """[N] a fact that an episode holds per turn number; where it is missing or too short, a
    default, for turn 0 `first`.

    Raises UserError where there is neither.
    """
    facts: list[Any] = []
    for e, n in zip(table.turns.episode_N.tolist(), table.turns.turn_N.tolist(), strict=True):
        held = table.episodes[e].facts.get(name)
        if held is not None and n < len(held):
            facts.append(held[n])
        elif default is not None or (first is not None and n == 0):
            facts.append(first if default is None else default)
        else:
            g, i = table.where[e]
            raise UserError(
                f"trajectory {i} of group {g} has no {name!r} for its turn {n}; give one value a "
                f"turn (in a world: the state_key of its frames, or the fact {name!r})"
            )
    return facts


def table_signal(table: Table, name: str) -> np.ndarray:
    """[tokens] a measured signal at every trained token; [tokens, V] where it is a distribution."""
    at = table.tokens
    try:
        return np.array(
            [
                table.signals[e][r][name][p]
                for e, r, p in zip(at.episode_N, at.row_N, at.position_N, strict=True)
            ]
        )
    except KeyError:
        model, _, quantity = name.rpartition("_")
        raise KeyError(
            f"signal {name!r} was not measured; the learner needs ({model!r}, {quantity!r})"
        ) from None
