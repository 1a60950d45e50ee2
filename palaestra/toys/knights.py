"""Knights and knaves (the Ladder's fourth domain): knights tell the truth, knaves lie, exactly one
assignment fits.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

import numpy as np

from palaestra.abilities import Habit
from palaestra.declared import declare
from palaestra.tasks.procedural import (
    ANSWER_PREFIX,
    answer_lines,
    draw_task,
    exact_match,
    format_answer,
    question_task,
)
from palaestra.types import Task, stage, value_class

NAMES = "ABCDEFGHIJ"


@value_class
class Saying:
    """What one person says: of `first` that they lie, or of two that both, one at least, or alike
    are knights.
    """

    form: str  # "lies" | "and" | "or" | "like"
    first: int
    second: int

    def __str__(self) -> str:
        first, second = NAMES[self.first], NAMES[self.second]
        return f"{first} lies" if self.form == "lies" else f"{first} {self.form} {second}"

    def holds(self, knight: np.ndarray) -> np.ndarray:
        """Whether it is true; `knight` is [..., people] of booleans."""
        a, b = knight[..., self.first], knight[..., self.second]
        return {"lies": ~a, "and": a & b, "or": a | b, "like": a == b}[self.form]


@lru_cache(maxsize=16)
def assignments(people: int) -> np.ndarray:
    """All [2^people, people]."""
    return (np.arange(2**people)[:, None] >> np.arange(people) & 1).astype(bool)


def fitting_assignments(sayings: Sequence[Saying]) -> np.ndarray:
    """The assignments in which knights, and only they, speak the truth."""
    knights = assignments(len(sayings))
    holds = np.stack([s.holds(knights) for s in sayings], axis=1)
    return knights[(holds == knights).all(axis=1)]


def spell(knight: np.ndarray) -> str:
    return "".join("K" if k else "N" for k in knight)


@declare(columns=(("sayings", tuple, "what each of them says"), "d"))
@stage
class Knights:
    """`A: B lies, B: A and C, C: ...`: d + 1 people. The answer is a letter a person: K knight, N
    knave.
    """

    d: int = 3
    name: str = "knights"
    size: int | None = None

    def task(self, split: str, index: int) -> Task:
        return draw_task(self, split, index, self._draw)

    def _draw(self, rng: np.random.Generator) -> Task:
        people = self.d + 1
        while True:
            sayings = tuple(self._saying(rng, who, people) for who in range(people))
            assignments = fitting_assignments(sayings)
            if len(assignments) == 1:
                question = ", ".join(f"{NAMES[i]}: {s}" for i, s in enumerate(sayings))
                return question_task(
                    self.name, question, spell(assignments[0]), {"sayings": sayings, "d": self.d}
                )

    def _saying(self, rng: np.random.Generator, who: int, people: int) -> Saying:
        others = [i for i in range(people) if i != who]
        form = str(rng.choice(["lies", "and", "or", "like"]))
        pair = others if form == "lies" else list(range(people))
        first, second = (int(x) for x in rng.choice(pair, 2, replace=form == "lies"))
        return Saying(form=form, first=first, second=second)

    def first_contradicted(self, candidate: str, task: Task) -> str:
        """The first person whom a candidate answer contradicts; "ok" if nobody."""
        knight = np.array([c == "K" for c in candidate])
        for i, s in enumerate(task.meta["sayings"]):
            if s.holds(knight) != knight[i]:
                return NAMES[i]
        return "ok"

    def check(self, text: str, task: Task) -> float:
        return exact_match(text, task)

    def first_wrong(self, text: str, task: Task) -> int | None:
        """Tries are `KNK B`, where B is the first person contradicted."""
        lines = answer_lines(text)
        for at, line in enumerate(lines):
            if line.startswith(ANSWER_PREFIX):
                return None if self.check(line, task) else at
            candidate, _, assignment = line.partition(" ")
            if (
                len(candidate) != len(task.answer)
                or set(candidate) - set("KN")
                or self.first_contradicted(candidate, task) != assignment
            ):
                return at
        return len(lines)

    def demonstration(self, task: Task, rng: np.random.Generator, habit: Habit) -> str:
        """A working tries up to three assignments that fail before the one that fits."""
        if habit == "guess":
            return format_answer([], task.answer)
        failing = [c for c in map(spell, assignments(len(task.answer))) if c != task.answer]
        tried = [str(c) for c in rng.permutation(failing)[: int(rng.integers(0, 4))]]
        return format_answer(
            [f"{c} {self.first_contradicted(c, task)}" for c in [*tried, task.answer]], task.answer
        )
