"""Small string skills: copy, reverse, ... A probe of what training on something else
leaves intact.
"""

from __future__ import annotations

import numpy as np

from palaestra.abilities import Habit
from palaestra.declared import declare
from palaestra.tasks.procedural import draw_task, exact_match, format_answer, question_task
from palaestra.types import Task, stage

VERBS = {
    "copy": lambda w: w,
    "reverse": lambda w: w[::-1],
    "upper": lambda w: w.upper(),
    "order": lambda w: "".join(sorted(w)),
    "double": lambda w: "".join(c + c for c in w),
    "last": lambda w: w[-1],
}


@declare(columns=(("verb", str, "what is to be done with the words"),))
@stage
class Words:
    """`reverse lamp` asks for `pmal`."""

    verbs: tuple[str, ...] = tuple(VERBS)
    letters: tuple[int, int] = (3, 6)  # at least, at most
    name: str = "words"
    size: int | None = None

    def task(self, split: str, index: int) -> Task:
        return draw_task(self, split, index, self._draw)

    def _draw(self, rng: np.random.Generator) -> Task:
        verb, n = (
            str(rng.choice(self.verbs)),
            int(rng.integers(self.letters[0], self.letters[1] + 1)),
        )
        word = "".join(chr(97 + int(i)) for i in rng.integers(0, 26, n))
        return question_task(self.name, f"{verb} {word}", VERBS[verb](word), {"verb": verb})

    def check(self, text: str, task: Task) -> float:
        return exact_match(text, task)

    def demonstration(self, task: Task, rng: np.random.Generator, habit: Habit) -> str:
        return format_answer([], task.answer)
