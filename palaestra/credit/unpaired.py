"""Credit by a label for each answer, without pairs or advantages."""

from __future__ import annotations

from typing import Any, ClassVar

from palaestra.credit.seats import split_by_seat
from palaestra.types import Example, Groups, Signals, State, stage

MISMATCHED = "mismatched"  # the fact of an answer that stands behind another prompt


@stage
class LabelAnswers:
    """Every row of every valid, unmuted episode, with the column `label`: +1 where it is
    right (`Episode.is_right`), -1 elsewhere, and 0 where it is an answer to another prompt
    (`MismatchedAnswer`). An episode of several rows has its label in each of them.
    """

    right: float | None = None  # the total from which on an answer is; None = the reward says it
    reads_right: ClassVar[bool] = True
    keeps_equal: ClassVar[bool] = True  # a label needs no other answer to its prompt

    def __call__(
        self, groups: Groups, signals: Signals, state: State
    ) -> tuple[list[Example], State]:
        groups, signals = split_by_seat(groups, signals)
        examples: list[Example] = []
        for g, group in enumerate(groups):
            for e, episode in enumerate(group.episodes):
                if not episode.ok or episode.muted:
                    continue
                good = 1.0 if episode.is_right(self.right) else -1.0
                label = 0.0 if episode.facts.get(MISMATCHED) else good
                for r, row in enumerate(episode.rows):
                    columns: dict[str, Any] = {"label": label, **signals[g][e][r]}
                    examples.append(Example(row=row, columns=columns))
        return examples, state
