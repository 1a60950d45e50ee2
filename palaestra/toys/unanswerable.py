"""Sums of which some cannot be done: a digit is missing, and the right answer is to say so."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from palaestra.abilities import Habit
from palaestra.declared import declare
from palaestra.tasks.procedural import TEST_SHARE, draw_task, exact_match, format_answer
from palaestra.toys.ladder import Add
from palaestra.types import Message, Task, stage

UNKNOWN = "?"


@declare(columns=(("answerable", bool, "whether the question has an answer"),))
@stage
class Unanswerable:
    """`38+2?` asks for `= ?`, `38+27` for `= 65`. A share of the problems lacks a digit; meta
    `answerable` says which.
    """

    d: int = 2
    share: float = 0.4
    name: str = "unanswerable"
    size: int | None = None

    def task(self, split: str, index: int) -> Task:
        return draw_task(self, split, index, self._draw)

    def _draw(self, rng: np.random.Generator) -> Task:
        # of the sum; `draw_task` sorts by the question
        split = "test" if rng.random() < 1 / TEST_SHARE else "train"
        task = Add(self.d).task(split, int(rng.integers(2**31)))
        question = task.prompt[0].content
        if rng.random() >= self.share:
            return replace(task, domain=self.name, meta={**task.meta, "answerable": True})
        at = int(rng.choice([i for i, c in enumerate(question) if c.isdigit()]))
        hidden = question[:at] + UNKNOWN + question[at + 1 :]
        prompt = (Message(role="user", content=hidden),)
        return replace(
            task,
            domain=self.name,
            prompt=prompt,
            answer=UNKNOWN,
            meta={"answerable": False, "steps": ()},
        )

    def check(self, text: str, task: Task) -> float:
        return exact_match(text, task)

    def demonstration(self, task: Task, rng: np.random.Generator, habit: Habit) -> str:
        return format_answer(list(task.meta["steps"]) if habit == "work" else [], task.answer)
