"""T-count: a small countdown. Combine all numbers with + - * to hit the target; many expressions
do.
"""

from __future__ import annotations

import re
from functools import lru_cache
from itertools import combinations

import numpy as np

from palaestra.abilities import Habit
from palaestra.declared import declare
from palaestra.tasks.procedural import (
    ANSWER_PREFIX,
    answer_lines,
    draw_task,
    final_answer,
    format_answer,
    question_task,
)
from palaestra.types import Task, stage

TOKEN = re.compile(r"0|[1-9][0-9]*|[-+*()]", re.ASCII)
LONGEST = 80  # characters of an expression that is still read


class NotExpression(Exception):
    """Not an expression."""


def value_of(text: str) -> tuple[int, tuple[int, ...]]:
    """The value of an expression of + - * and brackets, and the numbers it uses. Raises
    `Unreadable`.
    """
    tokens = TOKEN.findall(text)
    if (
        len(text) > LONGEST
        or "".join(tokens) != text.replace(" ", "")
        or re.search(r"[0-9] +[0-9]", text)
    ):
        raise NotExpression(text[:LONGEST])
    value, rest, used = _sum(tokens)
    if rest:
        raise NotExpression(text)
    return value, tuple(used)


def _sum(tokens: list[str]) -> tuple[int, list[str], list[int]]:
    value, rest, used = _product(tokens)
    while rest and rest[0] in "+-":
        more, after, also = _product(rest[1:])
        value, rest, used = (value + more if rest[0] == "+" else value - more), after, used + also
    return value, rest, used


def _product(tokens: list[str]) -> tuple[int, list[str], list[int]]:
    value, rest, used = _atom(tokens)
    while rest and rest[0] == "*":
        more, rest, also = _atom(rest[1:])
        value, used = value * more, used + also
    return value, rest, used


def _atom(tokens: list[str]) -> tuple[int, list[str], list[int]]:
    if not tokens:
        raise NotExpression("it ends too early")
    if tokens[0].isdigit():
        return int(tokens[0]), tokens[1:], [int(tokens[0])]
    if tokens[0] != "(":
        raise NotExpression(tokens[0])
    value, rest, used = _sum(tokens[1:])
    if not rest or rest[0] != ")":
        raise NotExpression("an open bracket")
    return value, rest[1:], used


@lru_cache(maxsize=4096)
def expressions(numbers: tuple[int, ...]) -> tuple[tuple[str, int, str], ...]:
    """All ways to combine sorted `numbers`: (text, value, top operator), each text once."""
    if len(numbers) == 1:
        return ((str(numbers[0]), numbers[0], ""),)
    values = {}
    for size in range(1, len(numbers)):
        for chosen in combinations(range(len(numbers)), size):
            left = tuple(numbers[i] for i in chosen)
            right = tuple(n for i, n in enumerate(numbers) if i not in chosen)
            for a, x, p in expressions(left):
                for b, y, q in expressions(right):
                    for op, v in (("+", x + y), ("-", x - y), ("*", x * y)):
                        values[f"{_bracket(a, p, op, False)}{op}{_bracket(b, q, op, True)}"] = (
                            v,
                            op,
                        )
    return tuple((text, v, op) for text, (v, op) in values.items())


def _bracket(text: str, inner: str, outer: str, right: bool) -> str:
    """Brackets only where precedence, or a minus to the left, needs them."""
    needed = (inner in ("+", "-") and outer == "*") or (
        right and outer == "-" and inner in ("+", "-")
    )
    return f"({text})" if needed else text


@declare(columns=("numbers", ("target", int, "the number to be reached")))
@stage
class Count:
    """`make 14 from 2 3 8` has the answers 2*3+8, 8+3*2, ... Every task is solvable."""

    numbers: int = 3
    largest: int = 9
    target: int = 50  # at most; at least 1
    name: str = "count"
    size: int | None = None

    def task(self, split: str, index: int) -> Task:
        return draw_task(self, split, index, self._draw)

    def _draw(self, rng: np.random.Generator) -> Task:
        while True:
            numbers = tuple(sorted(int(x) for x in rng.integers(1, self.largest + 1, self.numbers)))
            reached = [e for e in expressions(numbers) if 1 <= e[1] <= self.target]
            if reached:
                text, target, _ = reached[int(rng.integers(len(reached)))]
                question = f"make {target} from {' '.join(map(str, numbers))}"
                return question_task(
                    self.name, question, text, {"numbers": numbers, "target": target}
                )

    def solutions(self, task: Task) -> list[str]:
        return [
            text for text, v, _ in expressions(task.meta["numbers"]) if v == task.meta["target"]
        ]

    def check(self, text: str, task: Task) -> float:
        """1 if the final expression uses exactly the numbers and hits the target."""
        try:
            value, used = value_of(final_answer(text) or "")
        except NotExpression:
            return 0.0
        return float(value == task.meta["target"] and sorted(used) == sorted(task.meta["numbers"]))

    def first_wrong(self, text: str, task: Task) -> int | None:
        """Tries are `expression=value`: wrong where the value is; the answer line is wrong where it
        misses.
        """
        lines = answer_lines(text)
        for at, line in enumerate(lines):
            if line.startswith(ANSWER_PREFIX):
                return None if self.check(line, task) else at
            expression, _, value = line.rpartition("=")
            try:
                if str(value_of(expression)[0]) != value:
                    return at
            except NotExpression:
                return at
        return len(lines)

    def demonstration(self, task: Task, rng: np.random.Generator, habit: Habit) -> str:
        """Some solution; a working tries up to three wrong expressions before it."""
        right = str(rng.choice(self.solutions(task)))
        if habit == "guess":
            return format_answer([], right)
        wrong = [
            (e, v) for e, v, _ in expressions(task.meta["numbers"]) if v != task.meta["target"]
        ]
        tried = (
            [wrong[int(i)] for i in rng.integers(0, len(wrong), int(rng.integers(0, 4)))]
            if wrong
            else []
        )
        return format_answer([f"{e}={v}" for e, v in [*tried, (right, task.meta["target"])]], right)
