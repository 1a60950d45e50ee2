"""T-opinions: questions on which annotators disagree, some more than others.

user: 71 of 40: much?          annotators: yes yes no yes yes
"""

from __future__ import annotations

import math

import numpy as np

from palaestra.abilities import Habit
from palaestra.declared import declare
from palaestra.tasks.procedural import draw_task, question_task
from palaestra.types import Task, need_at_least, stage

YES, NO = "yes", "no"


@declare(columns=(("annotations", tuple, "what each annotator answered"),))
@stage
class Opinions:
    """`71 of 40: much?` Each of so many `annotators` says yes by a chance of its own, p = 1 / (1 +
    exp(-(a - b) / width)) of "a of b". The answer is the majority's, of a tie that of the first; the
    demonstration is that of one annotator.
    """

    annotators: int = 5
    width: float = 20.0
    name: str = "opinions"
    size: int | None = None
    max_tokens: int = 4

    def __post_init__(self) -> None:
        need_at_least(self, annotators=1)

    def task(self, split: str, index: int) -> Task:
        return draw_task(self, split, index, self._draw)

    def _draw(self, rng: np.random.Generator) -> Task:
        a, b = (int(x) for x in rng.integers(0, 100, 2))
        p = 1 / (1 + math.exp(-(a - b) / self.width))
        labels = tuple(YES if rng.random() < p else NO for _ in range(self.annotators))
        answer = max((YES, NO), key=lambda label: (labels.count(label), label == labels[0]))
        return question_task(self.name, f"{a} of {b}: much?", answer, {"annotations": labels})

    def check(self, text: str, task: Task) -> float:
        """1 for the majority's answer, else 0."""
        return float(text.strip().casefold() == task.answer)

    def demonstration(self, task: Task, rng: np.random.Generator, habit: Habit) -> str:
        """What one of the annotators said."""
        return str(rng.choice(task.meta["annotations"]))
