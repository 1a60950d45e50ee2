"""Inclusions between sets that closure, interior and complement make of one set, and proofs of them."""

from __future__ import annotations

from functools import lru_cache

import numpy as np

from palaestra.abilities import Habit
from palaestra.services.proof.closure import (
    ClosureAlgebra,
    SetStatement,
    Term,
    find_chain,
    read_sets,
    set_text,
    statement_text,
)
from palaestra.services.proof.spaces import refute_sets
from palaestra.tasks.procedural import answer_lines, draw_task, question_task
from palaestra.types import Task, stage

SIGNS = ("cl", "int", "cl", "int", "~")
POINTS = 3  # of spaces that refute what is false


def random_word(rng: np.random.Generator, most: int) -> Term:
    """Up to `most` operators on A."""
    term: Term = "A"
    for _ in range(int(rng.integers(0, most + 1))):
        term = (str(rng.choice(SIGNS)), term)
    return term


@lru_cache(maxsize=4096)
def _proof(text: str, most: int) -> tuple[str, ...] | None:
    chain = find_chain(read_sets(text), most)
    return None if chain is None else tuple(map(set_text, chain))


@stage
class ClosureTheorems:
    """`cl int cl A <= cl A`: inclusions of up to `d` operators a side whose shortest proof has `least` to `most`
    steps; held-out ones have `held` steps. The answer is a chain of sets, a line each, up to the right side; any
    that the kernel accepts earns 1.
    """

    d: int = 4
    least: int = 1
    most: int = 4
    held: tuple[int, int] = (3, 5)
    name: str = "closures"
    size: int | None = None
    test_size: int = 64
    max_tokens: int = 96  # of a proof

    def task(self, split: str, index: int) -> Task:
        steps = self.held if split == "test" else (self.least, self.most)
        return draw_task(self, split, index, lambda rng: self._draw(rng, *steps))

    def _draw(self, rng: np.random.Generator, least: int, most: int) -> Task:
        while True:
            pair = (random_word(rng, self.d), random_word(rng, self.d))
            statement = SetStatement(hypotheses=(), conclusion=pair)
            if pair[0] == pair[1] or refute_sets(statement, POINTS):
                continue
            text = statement_text(statement)
            proof = _proof(text, most)
            if proof is not None and len(proof) >= least:
                return question_task(self.name, text, "\n".join(proof))

    def check(self, text: str, task: Task) -> float:
        return float(ClosureAlgebra().accepts(task.prompt[-1].content, answer_lines(text)))

    def demonstration(self, task: Task, rng: np.random.Generator, habit: Habit) -> str:
        return str(task.answer)
