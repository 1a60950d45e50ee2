"""Theorems of propositional logic, drawn and decided by the built-in proof kernel."""

from __future__ import annotations

import numpy as np

from palaestra.abilities import Habit
from palaestra.services.proof.formulas import (
    Formula,
    formula_text,
    is_tautology,
    negation,
    read_formula,
)
from palaestra.services.proof.natural import NaturalDeduction, find_proof
from palaestra.tasks.procedural import answer_lines, draw_task, question_task
from palaestra.types import Task, stage

NAMES = "pqr"
SIGNS = ("->", "->", "&", "|", "~")


def random_formula(rng: np.random.Generator, depth: int) -> Formula:
    """At most `depth` connectives above one another."""
    if depth == 0 or rng.random() < 0.1:
        return str(rng.choice(list(NAMES)))
    sign = str(rng.choice(SIGNS))
    first = random_formula(rng, depth - 1)
    return negation(first) if sign == "~" else (sign, first, random_formula(rng, depth - 1))


@stage
class Theorems:
    """`p & q -> q & p`: formulas of depth `d` over p, q, r that hold, with a proof of `least` to `most`
    tactics. The answer is a proof, a tactic a line; any that the kernel accepts earns 1.
    """

    d: int = 3
    least: int = 3
    most: int = 12
    name: str = "theorems"
    size: int | None = None

    def task(self, split: str, index: int) -> Task:
        return draw_task(self, split, index, self._draw)

    def _draw(self, rng: np.random.Generator) -> Task:
        while True:
            formula = ("->", random_formula(rng, self.d - 1), random_formula(rng, self.d - 1))
            if not is_tautology(formula):
                continue
            text = formula_text(formula)
            proof = find_proof(text)
            if proof is not None and self.least <= len(proof) <= self.most:
                return question_task(self.name, text, "\n".join(proof))

    def check(self, text: str, task: Task) -> float:
        theorem = formula_text(read_formula(task.prompt[-1].content))
        return float(NaturalDeduction().accepts(theorem, answer_lines(text)))

    def demonstration(self, task: Task, rng: np.random.Generator, habit: Habit) -> str:
        return str(task.answer)
