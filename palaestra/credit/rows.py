"""Credit without advantages: rows to imitate, and pairs to prefer."""

from __future__ import annotations

from typing import Any

from palaestra.types import Example, Groups, Signals, State, stage


@stage
class Imitate:
    """Every row of every valid, unmuted episode, with its signals and no advantage."""

    def __call__(self, groups: Groups, signals: Signals, state: State) -> tuple[list[Example], State]:
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
    """One pair a group: its best against its worst episode, ties and lone episodes left out. Column `sign` is +1 or -1.

    Rows of a pair are one unit. `gap` is the least difference in reward that makes a pair.
    """

    gap: float = 1e-9

    def __call__(self, groups: Groups, signals: Signals, state: State) -> tuple[list[Example], State]:
        found: list[Example] = []
        for g, group in enumerate(groups):
            ranked = sorted(
                (e for e in range(len(group.episodes)) if group.episodes[e].ok), key=lambda e: group.episodes[e].total
            )
            if len(ranked) < 2 or group.episodes[ranked[-1]].total - group.episodes[ranked[0]].total < self.gap:
                continue
            for e, sign in ((ranked[-1], 1.0), (ranked[0], -1.0)):
                for r, row in enumerate(group.episodes[e].rows):
                    columns: dict[str, Any] = {"sign": sign, **signals[g][e][r]}
                    found.append(Example(row=row, columns=columns, unit=f"pair {g}"))
        return found, state
