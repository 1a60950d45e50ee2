"""Training rows of reward models. A marker token follows each row: there the heads read the whole
text, its end included.

The marker repeats the row's last token and nothing is read behind it, so its identity is never
seen. Column `marker` [T].
"""

from __future__ import annotations

from dataclasses import replace
from itertools import combinations
from typing import Any, ClassVar, Literal

import numpy as np

from palaestra.credit.seats import split_by_payee
from palaestra.types import (
    Episode,
    Example,
    Group,
    Groups,
    Row,
    Segment,
    Signals,
    State,
    rng_of,
    stage,
)


def add_marker(row: Row) -> Row:
    """The row with its marker. Raises ValueError for a row without a visible token."""
    ids = row.view().ids_T
    if not len(ids):
        raise ValueError("a row without a token cannot be scored")
    return row.add(Segment(ids=(int(ids[-1]),), author="marker", trained=True))


def columns_of(row: Row, keep: tuple[str, ...] = ()) -> dict[str, Any]:
    """Of a marked row: heads are trained at the marker, log-probs at the tokens of the authors
    `keep`.
    """
    seen = [s for s in row.segments if not s.hidden]
    authors = [s.author for s in seen for _ in s.ids]
    marker = np.array([a == "marker" for a in authors])
    return {
        "marker": marker.astype(float),
        "trained": marker | np.array([a in keep for a in authors]),
    }


def scorable_episodes(episodes: tuple[Episode, ...]) -> list[Episode]:
    """Those that train, and whose last row can be scored."""
    return [
        e
        for e in episodes
        if e.ok and not e.muted and e.reward is not None and e.rows and len(e.rows[-1].view().ids_T)
    ]


def split_by_paid_seat(groups: Groups) -> list[tuple[str, Group]]:
    """The groups of every seat that was paid, each with a name of its own: the task's, and the
    seat's where several are paid.
    """
    return [
        (f"{g.task.id} {seat}".rstrip(), part) for g in groups for seat, part in split_by_payee(g)
    ]


@stage
class Compare:
    """Pairs of a group's episodes: units of two marked rows, the better with `sign` +1, the other
    with -1.

    pairs="extremes" takes the best and the worst of a group, "all" every two that differ by `gap`.
    With `ties`, two of equal reward are a unit too, with `tie` 1. `bootstrap` names heads that each
    see their own resample of the data: the column HEAD_weight is Poisson(1) of (task, pair, head),
    so that a head sees or misses a pair every time. Where several seats are paid, each has pairs of
    its own: its last rows, by its own pay.
    """

    pairs: Literal["extremes", "all"] = "extremes"
    gap: float = 1e-9
    ties: bool = False
    bootstrap: tuple[str, ...] = ()
    keep: tuple[str, ...] = ()  # authors whose tokens are trained too, e.g. "critique"
    needs_several: ClassVar[bool] = True

    def __call__(
        self, groups: Groups, signals: Signals, state: State
    ) -> tuple[list[Example], State]:
        examples: list[Example] = []
        for g, (name, group) in enumerate(split_by_paid_seat(groups)):
            ranked = sorted(scorable_episodes(group.episodes), key=lambda e: -e.total)
            for n, (better, other) in enumerate(self._pairs(ranked)):
                weights = {f"{h}_weight": weight(name, n, h) for h in self.bootstrap}
                tie = float(better.total - other.total < self.gap)
                given = better.facts.get("gap")
                more = {} if given is None else {"gap": float(given)}
                for episode, sign in ((better, 1.0), (other, -1.0)):
                    row = add_marker(episode.rows[-1])
                    columns = {
                        **columns_of(row, self.keep),
                        **weights,
                        "sign": sign,
                        "tie": tie,
                        **more,
                    }
                    examples.append(Example(row=row, columns=columns, unit=f"pair {g} {n}"))
        return examples, state

    def _pairs(self, ranked: list[Episode]) -> list[tuple[Episode, Episode]]:
        if len(ranked) < 2:
            return []
        every = (
            [(ranked[0], ranked[-1])] if self.pairs == "extremes" else list(combinations(ranked, 2))
        )
        return [(a, b) for a, b in every if self.ties or a.total - b.total >= self.gap]


@stage
class Rate:
    """One marked row an episode, with its labels: column target_NAME is the part NAME of its
    reward, NaN where it has none.

    "total" is the reward itself. Where several seats are paid, each has a row, its last one, and
    "total" is its own pay.
    """

    targets: tuple[str, ...] = ("total",)
    bootstrap: tuple[str, ...] = ()
    keep: tuple[str, ...] = ()

    def __call__(
        self, groups: Groups, signals: Signals, state: State
    ) -> tuple[list[Example], State]:
        examples: list[Example] = []
        for name, group in split_by_paid_seat(groups):
            for n, episode in enumerate(scorable_episodes(group.episodes)):
                row, reward = add_marker(episode.rows[-1]), episode.reward
                labels = {"total": episode.total, **(reward.parts if reward else {})}
                targets = {f"target_{t}": labels.get(t, np.nan) for t in self.targets}
                weights = {f"{h}_weight": weight(name, n, h) for h in self.bootstrap}
                examples.append(
                    Example(row=row, columns={**columns_of(row, self.keep), **targets, **weights})
                )
        return examples, state


@stage
class RatePrompts:
    """One marked row a group, its prompt alone, with the mean reward of its episodes as the column
    target_total: what a model learns from that tells before an attempt how it will end.
    """

    def __call__(
        self, groups: Groups, signals: Signals, state: State
    ) -> tuple[list[Example], State]:
        examples: list[Example] = []
        for group in groups:
            rated = [e for e in group.valid if e.reward is not None and e.rows]
            prompt = prompt_row(rated[0].rows[0]) if rated else Row()
            if len(prompt.view().ids_T):
                row = add_marker(prompt)
                target = {"target_total": float(np.mean([e.total for e in rated]))}
                examples.append(Example(row=row, columns={**columns_of(row), **target}))
        return examples, state


def prompt_row(row: Row) -> Row:
    """What was seen before the first trained token of a row."""
    begin = next((i for i, s in enumerate(row.segments) if s.trained), len(row.segments))
    return replace(row, segments=row.segments[:begin])


def weight(task: str, n: int, head: str) -> float:
    """How often a head's resample holds this datum."""
    return float(rng_of(("bootstrap", task, n, head)).poisson(1.0))
