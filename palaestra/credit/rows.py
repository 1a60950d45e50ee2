"""Credit without advantages: rows to imitate, and pairs to prefer."""

from __future__ import annotations

from typing import Any

from palaestra.credit.seats import split_by_seat
from palaestra.types import Episode, Example, Groups, Signals, State, stage


@stage
class Imitate:
    """Every row of every valid, unmuted episode, with its signals and no advantage."""

    def __call__(
        self, groups: Groups, signals: Signals, state: State
    ) -> tuple[list[Example], State]:
        found = [
            Example(row=row, columns=dict(signals[g][e][r]))
            for g, group in enumerate(groups)
            for e, episode in enumerate(group.episodes)
            if episode.ok and not episode.muted
            for r, row in enumerate(episode.rows)
        ]
        return found, state


@stage
class Prefer:
    """One pair a group: its best against its worst episode, ties and lone episodes left out. Column
    `sign` is +1 or -1.

    Rows of a pair are one unit; every seat of self-play has its own pairs. `gap` is the least
    difference that makes a pair.
    """

    gap: float = 1e-9

    def __call__(
        self, groups: Groups, signals: Signals, state: State
    ) -> tuple[list[Example], State]:
        groups, signals = split_by_seat(groups, signals)
        found: list[Example] = []
        for g, group in enumerate(groups):
            able = [
                e for e, episode in enumerate(group.episodes) if episode.ok and _trains(episode)
            ]
            ranked = sorted(able, key=lambda e: group.episodes[e].total)
            if (
                len(ranked) < 2
                or group.episodes[ranked[-1]].total - group.episodes[ranked[0]].total < self.gap
            ):
                continue
            for e, sign in ((ranked[-1], 1.0), (ranked[0], -1.0)):
                for r, row in enumerate(group.episodes[e].rows):
                    columns: dict[str, Any] = {"sign": sign, **signals[g][e][r]}
                    found.append(Example(row=row, columns=columns, unit=f"pair {g}"))
        return found, state


def _trains(episode: Episode) -> bool:
    """Whether it may be learned from, and has something to: a seat may be paid without having had
    its turn.
    """
    return not episode.muted and any(s.trained for r in episode.rows for s in r.segments)
