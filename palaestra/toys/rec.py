"""T-rec: what comes next in a history of items that have 4-level codes.

A user walks through the catalogue with one stride a level: level l of the next item is the letter
`stride[l]` further (modulo 4), but with probability `noise` any letter. So the best guess is right
with probability (1 - noise * 3/4)^4.
"""

from __future__ import annotations

import numpy as np

from palaestra.abilities import Habit
from palaestra.declared import declare
from palaestra.tasks.procedural import draw_task, exact_match, format_answer, question_task
from palaestra.types import Task, stage

# the letters of each level: a code is one of each, e.g. "bfkm"
LEVELS = ("abcd", "efgh", "ijkl", "mnop")


def spell_code(code: np.ndarray) -> str:
    return "".join(letters[int(i)] for letters, i in zip(LEVELS, code, strict=True))


@declare(
    columns=(
        ("stride", tuple, "the rule that gives the next item"),
        ("history", tuple, "the items so far"),
    )
)
@stage
class Rec:
    """`aeim beim ceim` asks for `deim`."""

    history: int = 4  # items shown
    noise: float = 0.1  # how often a level ignores the stride
    name: str = "rec"
    size: int | None = None

    def task(self, split: str, index: int) -> Task:
        return draw_task(self, split, index, self._draw)

    def _draw(self, rng: np.random.Generator) -> Task:
        stride, item = rng.integers(0, 4, 4), rng.integers(0, 4, 4)
        items = [spell_code(item)]
        for _ in range(self.history):
            item = np.where(rng.random(4) < self.noise, rng.integers(0, 4, 4), (item + stride) % 4)
            items.append(spell_code(item))
        meta = {"stride": tuple(int(s) for s in stride), "history": tuple(items[:-1])}
        return question_task(self.name, " ".join(items[:-1]), items[-1], meta)

    def check(self, text: str, task: Task) -> float:
        return exact_match(text, task)

    def demonstration(self, task: Task, rng: np.random.Generator, habit: Habit) -> str:
        """The item that came; a working names the strides first."""
        return format_answer(
            [" ".join(f"+{s}" for s in task.meta["stride"])] if habit == "work" else [], task.answer
        )
