"""T-chain: a chain of + - * modulo M, read strictly from left to right, every step checkable."""

from __future__ import annotations

from dataclasses import field

import numpy as np

from palaestra.abilities import Habit
from palaestra.declared import declare
from palaestra.tasks.procedural import (
    draw_task,
    exact_match,
    first_wrong_line,
    format_answer,
    question_task,
)
from palaestra.types import Task, stage


def apply(a: int, op: str, b: int, modulo: int) -> int:
    return {"+": a + b, "-": a - b, "*": a * b}[op] % modulo


@declare(
    columns=(
        "numbers",
        ("ops", tuple, "the operations between them"),
        ("modulo", int, "what the results are taken modulo"),
    )
)
@stage
class ArithmeticChain:
    """`4+7*3-9 mod 10` is ((4+7)*3-9) mod 10 = 4. Difficulty is the number of operands, each below
    the modulus.
    """

    operands: tuple[int, int] = (4, 6)  # at least, at most
    modulo: int = 10
    name: str = "chain"
    size: int | None = None
    # of an answer, 0 = as elsewhere; not in the name of the random stream: the problems stay
    max_tokens: int = field(default=0, repr=False)

    def task(self, split: str, index: int) -> Task:
        return draw_task(self, split, index, self._draw)

    def _draw(self, rng: np.random.Generator) -> Task:
        n = int(rng.integers(self.operands[0], self.operands[1] + 1))
        numbers = [int(x) for x in rng.integers(0, self.modulo, n)]
        ops = [str(x) for x in rng.choice(list("+-*"), n - 1)]
        total = numbers[0]
        for op, b in zip(ops, numbers[1:], strict=True):
            total = apply(total, op, b, self.modulo)
        chain = str(numbers[0]) + "".join(
            f"{op}{b}" for op, b in zip(ops, numbers[1:], strict=True)
        )
        meta = {"numbers": tuple(numbers), "ops": tuple(ops), "modulo": self.modulo}
        return question_task(self.name, f"{chain} mod {self.modulo}", str(total), meta)

    def steps(self, task: Task) -> list[str]:
        """The working: one line `a op b=c` an operator."""
        numbers, ops, modulo = task.meta["numbers"], task.meta["ops"], task.meta["modulo"]
        total, lines = numbers[0], []
        for op, b in zip(ops, numbers[1:], strict=True):
            result = apply(total, op, b, modulo)
            lines.append(f"{total}{op}{b}={result}")
            total = result
        return lines

    def check(self, text: str, task: Task) -> float:
        return exact_match(text, task)

    def first_wrong(self, text: str, task: Task) -> int | None:
        return first_wrong_line(text, self.steps(task), task.answer)

    def demonstration(self, task: Task, rng: np.random.Generator, habit: Habit) -> str:
        """The teacher knows the answer, with or without showing the steps."""
        return format_answer(self.steps(task) if habit == "work" else [], task.answer)
