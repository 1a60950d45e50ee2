"""Preferences whose true reward is known: problems with two answers each, of which one is called
better, more often wrongly the nearer they are.

    r*(x, y) = ([answer right] + share of its steps before the first wrong one) / 2
    P(a is called better than b) = sigmoid(sharpness * (r*(a) - r*(b)))            (Bradley and Terry)

What is learned from such pairs can be measured twice: by what the pairs say, and by r*. Columns are
those of a user's own pairs, `prompt`, `chosen` and `rejected`, beside the `gap` r*(chosen) -
r*(rejected), which is below 0 where the label is wrong, and `shared`, the share of characters that
are the same at the same place.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Literal

import numpy as np

from palaestra.abilities import Habit
from palaestra.declared import declare
from palaestra.errors import UserError
from palaestra.toys.ladder import Add, Bool, Sort
from palaestra.toys.mistakes import wrong_answer
from palaestra.types import Task, rng_of, stage

SOURCES = {"add": Add, "bool": Bool, "sort": Sort}
TRIES = 100


@declare(
    columns=(
        "chosen",
        "rejected",
        "gap",
        ("shared", float, "the share of the two answers that is the same"),
    )
)
@stage
class Preferences:
    """Two workings of a problem that differ in a letter or two: right, or with a mistake in a step
    and in the answer.

    Args:
        source: the domain of the problems: "add", "bool" or "sort".
        d: their difficulty.
        sharpness: nats that a gap of 1 is worth; 0 = every label is a coin.
        wrong: share of the pairs in which neither is right, so that their gaps are small.
    """

    source: Literal["add", "bool", "sort"] = "add"
    d: int = 3
    sharpness: float = 8.0
    wrong: float = 0.5
    name: str = "preferences"
    size: int | None = None

    def __post_init__(self) -> None:
        if self.source not in SOURCES:
            raise UserError(
                f"preferences of {self.source!r} are not there; use {', '.join(SOURCES)}"
            )

    @property
    def problems(self) -> Add | Bool | Sort:
        return SOURCES[self.source](d=self.d)

    def task(self, split: str, index: int) -> Task:
        task = self.problems.task(split, index)
        rng = rng_of(("preferences", f"{self.wrong:g}", task.id))
        first, second = self._answers(task, rng)
        gap = self.gold(first, task) - self.gold(second, task)
        if rng.random() >= 1 / (1 + np.exp(-self.sharpness * gap)):
            first, second, gap = second, first, -gap
        pair = {"chosen": first, "rejected": second, "gap": gap, "shared": shared(first, second)}
        identity = f"{self.name}/{split}/{index}"
        return replace(task, id=identity, meta={**task.meta, **pair}, domain=self.name)

    def _answers(self, task: Task, rng: np.random.Generator) -> tuple[str, str]:
        """Two different workings."""
        source = self.problems
        second = wrong_answer(source, task, rng, "work")
        if rng.random() >= self.wrong:
            return source.demonstration(task, rng, "work"), second
        for _ in range(TRIES):
            if (first := wrong_answer(source, task, rng, "work")) != second:
                return first, second
        raise UserError(f"{self.name}: no two wrong answers to {task.prompt[0].content!r}; raise d")

    def gold(self, text: str, task: Task) -> float:
        """r*, in [0, 1]. A right answer without its working is a whole one."""
        steps = len(self.problems.steps(task))
        at = self.problems.first_wrong(text, task)
        sound = 1.0 if at is None or not steps else min(1.0, at / steps)
        return (self.problems.check(text, task) + sound) / 2

    def check(self, text: str, task: Task) -> dict[str, float]:
        """The total is r*; solved is what has the right answer."""
        return {"total": self.gold(text, task), "solved": self.problems.check(text, task)}

    def demonstration(self, task: Task, rng: np.random.Generator, habit: Habit) -> str:
        return self.problems.demonstration(task, rng, habit)


def shared(first: str, second: str) -> float:
    """The share of characters that are the same at the same place."""
    same = sum(a == b for a, b in zip(first, second, strict=False))
    return same / max(len(first), len(second), 1)
