"""T-store: the sum or product of two values of a store, which take two tools: one that looks up, and
one that calculates.

user: k7*p2
<tool_call>{"name": "get", "arguments": {"key": "k7"}}</tool_call>              tool: 41
<tool_call>{"name": "get", "arguments": {"key": "p2"}}</tool_call>              tool: 17
<tool_call>{"name": "multiply", "arguments": {"a": 41, "b": 17}}</tool_call>    tool: 697
= 697
"""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from palaestra.abilities import Habit
from palaestra.tasks.procedural import draw_task, exact_match, format_answer, question_task
from palaestra.tasks.user_code import VALUES
from palaestra.types import Task, rng_of, stage

LEAST, MOST = 2, 100  # of a value


def get(key: str) -> int:
    """The value of a key."""
    if len(key) != 2 or not key[0].islower() or not key[1].isdigit():
        raise KeyError(key)
    return int(rng_of(("store", key)).integers(LEAST, MOST))


def add(a: int, b: int) -> int:
    """The sum of a and b."""
    return a + b


def multiply(a: int, b: int) -> int:
    """The product of a and b."""
    return a * b


# names that hold in every process and on every machine
VALUES.update({f"store:{f.__name__}": f for f in (get, add, multiply)})


@stage
class StoreTasks:
    """`k7*p2` asks for the product of two values, `k7+p2` for their sum."""

    name: str = "store"
    size: int | None = 128
    tools: ClassVar[tuple[str, ...]] = ("store:get", "store:add", "store:multiply")

    def task(self, split: str, index: int) -> Task:
        return draw_task(self, split, index, self._draw)

    def _draw(self, rng: np.random.Generator) -> Task:
        keys = [f"{chr(97 + int(n) // 10)}{int(n) % 10}" for n in rng.permutation(260)[:2]]
        a, b = map(get, keys)
        operation, value = ("*", a * b) if rng.random() < 0.5 else ("+", a + b)
        return question_task(self.name, operation.join(keys), str(value))

    def check(self, text: str, task: Task) -> float:
        return exact_match(text, task)

    def demonstration(self, task: Task, rng: np.random.Generator, habit: Habit) -> str:
        return format_answer([], task.answer)
