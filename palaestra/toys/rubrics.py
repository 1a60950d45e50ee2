"""Answers that are judged by criteria with points, which the question does not say: a number of four
digits for a topic.

    for rain, 37     ->     = 4719

Each right digit in its place is worth a point, and more than four digits cost four: the score is
the sum of the points that are met over the sum of the positive ones. Criteria ("2: 7") and points are
columns of the task, so they can be shown, and what a topic wants can be learned from the score alone.
The number in the question only tells questions apart.
"""

from __future__ import annotations

import numpy as np

from palaestra.abilities import Habit
from palaestra.declared import declare
from palaestra.errors import UserError
from palaestra.tasks.procedural import draw_task, final_answer, format_answer, question_task
from palaestra.types import Task, rng_of, stage

TOPICS = ("rain", "salt", "tea", "snow", "bread", "ships", "stars", "honey", "dogs", "chess")
WANTED = 4  # digits of an answer
LONG = f"more than {WANTED} digits"


@declare(columns=("criteria", "points"))
@stage
class Rubrics:
    """`for rain, 37`: four digits, by the topic.

    Args:
        topics: how many of the ten there are.
        fixed: a topic always wants the same digits. Otherwise each question does by itself, and its
            topic says nothing: what is learned then is to keep criteria that are shown.
    """

    topics: int = 8
    fixed: bool = True
    name: str = "rubrics"
    size: int | None = None

    def __post_init__(self) -> None:
        if not 1 <= self.topics <= len(TOPICS):
            raise UserError(f"rubrics have 1 to {len(TOPICS)} topics, not {self.topics}")

    def task(self, split: str, index: int) -> Task:
        return draw_task(self, split, index, self._draw)

    def _draw(self, rng: np.random.Generator) -> Task:
        topic = TOPICS[int(rng.integers(self.topics))]
        of = rng_of(("rubrics", topic)) if self.fixed else rng
        digits = of.integers(10, size=WANTED).tolist()
        meta = {
            "criteria": (*(f"{i}: {d}" for i, d in enumerate(digits, 1)), LONG),
            "points": (*[1.0] * WANTED, -float(WANTED)),
        }
        question = f"for {topic}, {int(rng.integers(1000))}"
        return question_task(self.name, question, "".join(map(str, digits)), meta)

    def check(self, text: str, task: Task) -> float:
        """Points met over positive points, from -1 to 1; no answer is worth 0."""
        answer = final_answer(text)
        pairs = zip(task.meta["criteria"], task.meta["points"], strict=True)
        met = sum(p for c, p in pairs if answer is not None and meets(c, answer))
        return met / sum(p for p in task.meta["points"] if p > 0)

    def demonstration(self, task: Task, rng: np.random.Generator, habit: Habit) -> str:
        """The digits; there is no working to show."""
        return format_answer([], str(task.answer))


def meets(criterion: str, text: str) -> bool:
    """Whether a criterion holds of what was said."""
    if criterion == LONG:
        return len(text) > WANTED
    place, _, digit = criterion.partition(": ")
    return text[int(place) - 1 : int(place)] == digit
