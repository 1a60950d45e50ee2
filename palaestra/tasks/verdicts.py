"""Problems about answers: is this one right (variants of a theorem), which of these is right (multiple choice).

The tiny model has met both forms, `judge:` and `compare:`, and starts near chance.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from palaestra.tasks import formats
from palaestra.tasks.base import ANSWER, Habit, exact, first_wrong, written
from palaestra.tasks.chain import Chain
from palaestra.tasks.ladder import Add
from palaestra.types import Task, rng_of, stage


class Stepped:
    """The working is known: its lines stand in `meta["steps"]`."""

    def steps(self, task: Task) -> list[str]:
        return list(task.meta["steps"])

    def check(self, text: str, task: Task) -> float:
        return exact(text, task)

    def first_wrong(self, text: str, task: Task) -> int | None:
        return first_wrong(text, self.steps(task), task.answer)

    def demonstration(self, task: Task, rng: np.random.Generator, habit: Habit) -> str:
        return written(self.steps(task) if habit == "work" else [], task.answer)


@stage
class Variants(Stepped):
    """Each chain gives `variants` tasks in a row: its true equation (`right`), and equations that contradict it (`wrong`).

    `meta["theorem"]` names the chain: a theorem is solved if all its variants are. Proofs are checkable line by line.
    """

    variants: int = 2
    operands: tuple[int, int] = (4, 4)
    name: str = "variants"
    size: int | None = None

    def task(self, split: str, index: int) -> Task:
        number, variant = divmod(index, self.variants)
        chain = Chain(operands=self.operands)
        theorem = chain.task(split, number)
        false = int(theorem.answer) + rng_of((repr(self), split, number)).permutation(9) + 1
        shown = str(int(false[variant - 1]) % chain.modulo) if variant else theorem.answer
        task = formats.judging(theorem, f"{ANSWER}{shown}", variant == 0)
        steps = (*chain.steps(theorem), f"{theorem.answer} {shown}")
        meta = {"theorem": f"{self.name}/{split}/{number}", "steps": steps}
        return replace(task, id=f"{self.name}/{split}/{index}", meta=meta, domain=self.name)


@stage
class Options(Stepped):
    """`n` sums are offered for an addition of d digits, one of them right; the answer is its number. `meta["level"]` is d.

    Wrong sums differ in one digit, so neither length nor size tells them apart; the places are shuffled.
    """

    n: int = 2
    d: tuple[int, int] = (1, 4)  # digits, at least and at most
    name: str = "options"
    size: int | None = None

    def task(self, split: str, index: int) -> Task:
        rng = rng_of((repr(self), split, index))
        add = Add(int(rng.integers(self.d[0], self.d[1] + 1)))
        problem = add.task(split, index)
        offered = [problem.answer, *wrong_sums(problem.answer, self.n - 1, rng)]
        order = [int(i) for i in rng.permutation(self.n)]
        lines = [f"{place} {ANSWER}{offered[i]}" for place, i in enumerate(order, start=1)]
        task = formats.put(problem, "\n".join(["compare:", formats.question(problem), *lines]))
        meta = {
            "level": add.d,
            "steps": (*add.steps(problem), problem.answer),
            "shown": tuple(offered[i] for i in order),
        }
        answer = str(order.index(0) + 1)
        return replace(task, id=f"{self.name}/{split}/{index}", answer=answer, meta=meta, domain=self.name)


def wrong_sums(right: str, n: int, rng: np.random.Generator) -> Sequence[str]:
    """`n` different numbers of the same length that differ from the right one in one digit."""
    found: list[str] = []
    while len(found) < n:
        at, digit = int(rng.integers(len(right))), str(rng.integers(0 if len(right) == 1 else 1, 10))
        other = right[:at] + digit + right[at + 1 :]
        if other != right and other not in found:
            found.append(other)
    return found
