"""The Ladder: domains of graded difficulty d = 1, 2, ... with exact answers and reference steps.

Its fourth domain, knights and knaves, stands in `knights.py`.
"""

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


class Stepwise:
    """A domain whose working is determined by the problem: its lines stand in `meta["steps"]`."""

    def steps(self, task: Task) -> list[str]:
        return list(task.meta["steps"])

    def check(self, text: str, task: Task) -> float:
        return exact_match(text, task)

    def first_wrong(self, text: str, task: Task) -> int | None:
        return first_wrong_line(text, self.steps(task), task.answer)

    def demonstration(self, task: Task, rng: np.random.Generator, habit: Habit) -> str:
        return format_answer(self.steps(task) if habit == "work" else [], task.answer)


@declare(columns=("steps", "d"))
@stage
class Add(Stepwise):
    """`384+277`: d digits, added by column from the right, a line
    `digit+digit+carry=sum` a column.
    """

    d: int = 3
    name: str = "add"
    size: int | None = None
    max_tokens: int = field(default=0, repr=False)  # of an answer; 0 = as elsewhere

    def task(self, split: str, index: int) -> Task:
        return draw_task(self, split, index, self._draw)

    def _draw(self, rng: np.random.Generator) -> Task:
        low = 10 ** (self.d - 1) if self.d > 1 else 0
        a, b = (int(x) for x in rng.integers(low, 10**self.d, 2))
        steps, carry = [], 0
        for x, y in zip(reversed(str(a)), reversed(str(b)), strict=True):
            column = int(x) + int(y) + carry
            steps.append(f"{x}+{y}+{carry}={column}")
            carry = column // 10
        return question_task(
            self.name, f"{a}+{b}", str(a + b), {"steps": tuple(steps), "d": self.d}
        )


TABLE = {"&": lambda a, b: a and b, "|": lambda a, b: a or b, "^": lambda a, b: a != b}


@declare(columns=("steps", "d"))
@stage
class Bool(Stepwise):
    """`(T&(F|(T^!F)))`: the values of all d brackets, outermost first; the steps go from the
    innermost outwards.

    Asking for every bracket keeps a blind guess below one half, the floor of a single truth value.
    """

    d: int = 3
    name: str = "bool"
    size: int | None = None
    max_tokens: int = field(default=0, repr=False)  # of an answer; 0 = as elsewhere

    def task(self, split: str, index: int) -> Task:
        return draw_task(self, split, index, self._draw)

    def _draw(self, rng: np.random.Generator) -> Task:
        text, (expression, value) = "", self._leaf(rng)
        text, values, steps = expression, [], []
        for _ in range(self.d):
            op, (leaf, known), left = (
                str(rng.choice(list(TABLE))),
                self._leaf(rng),
                rng.random() < 0.5,
            )
            result = bool(TABLE[op](value, known))
            a, b = (leaf, expression) if left else (expression, leaf)
            steps.append(f"{a}{op}{b}={'FT'[result]}")
            text = f"({leaf}{op}{text})" if left else f"({text}{op}{leaf})"
            value, expression = result, "FT"[result]
            values.append(expression)
        return question_task(
            self.name, text, "".join(reversed(values)), {"steps": tuple(steps), "d": self.d}
        )

    def _leaf(self, rng: np.random.Generator) -> tuple[str, bool]:
        value, negated = rng.random() < 0.5, rng.random() < 0.5
        return ("!" if negated else "") + "FT"[value], bool(value != negated)


@declare(columns=("steps", "d"))
@stage
class Sort(Stepwise):
    """`sort 52917`: d + 2 digits, by selection; each line is the list after the next swap."""

    d: int = 3
    name: str = "sort"
    size: int | None = None
    max_tokens: int = field(default=0, repr=False)  # of an answer; 0 = as elsewhere

    def task(self, split: str, index: int) -> Task:
        return draw_task(self, split, index, self._draw)

    def _draw(self, rng: np.random.Generator) -> Task:
        digits = [int(x) for x in rng.integers(0, 10, self.d + 2)]
        question, steps = "sort " + "".join(map(str, digits)), []
        for i in range(len(digits)):
            least = min(range(i, len(digits)), key=digits.__getitem__)
            if digits[least] != digits[i]:
                digits[i], digits[least] = digits[least], digits[i]
                steps.append("".join(map(str, digits)))
        return question_task(
            self.name, question, "".join(map(str, digits)), {"steps": tuple(steps), "d": self.d}
        )
