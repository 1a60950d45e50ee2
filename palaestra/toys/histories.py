"""T-histories: what a user had, and candidates of which one is to the same taste.

user: 12 40 33      candidates: 71, 18, 90, 65, 52      18 is below fifty, as all that the user had
"""

from __future__ import annotations

import numpy as np

from palaestra.declared import declare
from palaestra.tasks.procedural import draw_task, question_task
from palaestra.types import Task, stage

MIDDLE = 50  # tastes are the numbers from 10 below it, and those from it to 89


@declare(reads_columns=("gold", "items"))
@stage
class HistoryTasks:
    """Next items of users who like numbers below 50, or from 50 on: `had` numbers that one had, and
    `candidates`, of which one, drawn like those, is the next. A task's meta: "gold", its text; "items", the
    texts of all, in an order drawn at random.
    """

    had: int = 3
    candidates: int = 6
    name: str = "histories"
    size: int | None = None

    def task(self, split: str, index: int) -> Task:
        return draw_task(self, split, index, self._draw)

    def _draw(self, rng: np.random.Generator) -> Task:
        sides = [rng.permutation(np.arange(10, MIDDLE)), rng.permutation(np.arange(MIDDLE, 90))]
        liked, others = sides if rng.random() < 0.5 else sides[::-1]
        history, right = liked[: self.had], liked[self.had]
        items = rng.permutation([right, *others[: self.candidates - 1]])
        meta = {"gold": (str(right),), "items": tuple(map(str, items))}
        return question_task(self.name, " ".join(map(str, history)), None, meta)
