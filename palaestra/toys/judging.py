"""Judging as a task that can be checked: which of two answers is right (`compare`), or whether one
is (`judge`).

Tasks 2k and 2k + 1 are one pair and share a `bundle`: both orders of a comparison, or the right and
the wrong answer. `Pairs` makes one task of the two.
"""

from __future__ import annotations

from dataclasses import replace

from palaestra.abilities import Habit
from palaestra.declared import declare
from palaestra.tasks import phrasing as formats
from palaestra.tasks.procedural import ANSWER_PREFIX, exact_match, format_answer
from palaestra.toys.chain import ArithmeticChain
from palaestra.types import Task, rng_of, stage


def pair_of(source: ArithmeticChain, split: str, index: int) -> tuple[Task, str, str]:
    """The problem number `index`, its answer and a wrong one."""
    task = source.task(split, index)
    wrong = (
        int(task.answer) + int(rng_of(("wrong", task.id)).integers(1, source.modulo))
    ) % source.modulo
    return task, f"{ANSWER_PREFIX}{task.answer}", f"{ANSWER_PREFIX}{wrong}"


def place_task(judged: Task, name: str, split: str, index: int) -> Task:
    return replace(
        judged, id=f"{name}/{split}/{index}", bundle=f"{name}/{split}/{index // 2}", domain=name
    )


@declare(columns=("judged", ("texts", tuple, "the two answers")))
@stage
class CompareAnswers:
    """`compare:` a chain and two final answers; the verdict is `= 1` or `= 2`. The better one
    stands first in even tasks.
    """

    source: ArithmeticChain = ArithmeticChain(operands=(2, 3))
    name: str = "compare"
    size: int | None = None

    def task(self, split: str, index: int) -> Task:
        task, right, wrong = pair_of(self.source, split, index // 2)
        options = (right, wrong, 1) if index % 2 == 0 else (wrong, right, 2)
        return place_task(formats.comparison_task(task, *options), self.name, split, index)

    def check(self, text: str, task: Task) -> float:
        return exact_match(text, task)

    def demonstration(self, task: Task, rng: object, habit: Habit) -> str:
        """The chain's own steps and answer, then the verdict."""
        inner: Task = task.meta["judged"]
        return format_answer(
            [*self.source.steps(inner), str(inner.answer)] if habit == "work" else [], task.answer
        )


@declare(columns=("judged", ("text", str, "the answer that is graded")))
@stage
class Grade:
    """`judge:` a chain and one final answer; the verdict is `= right` or `= wrong`. Even tasks show
    the right answer.
    """

    source: ArithmeticChain = ArithmeticChain(operands=(2, 3))
    name: str = "judge"
    size: int | None = None

    def task(self, split: str, index: int) -> Task:
        task, right, wrong = pair_of(self.source, split, index // 2)
        statement = (right, True) if index % 2 == 0 else (wrong, False)
        return place_task(formats.judging_task(task, *statement), self.name, split, index)

    def check(self, text: str, task: Task) -> float:
        return exact_match(text, task)

    def demonstration(self, task: Task, rng: object, habit: Habit) -> str:
        """The chain's own steps, its answer beside the one that is judged, then the verdict."""
        inner: Task = task.meta["judged"]
        own = f"{inner.answer} {task.meta['text'].removeprefix(ANSWER_PREFIX)}"
        return format_answer(
            [*self.source.steps(inner), own] if habit == "work" else [], task.answer
        )


@declare(columns=(("halves", tuple, "the comparison in both orders"),))
@stage
class Pairs:
    """Both halves of a pair as one task; `meta["halves"]` are the two."""

    halves: CompareAnswers | Grade = CompareAnswers()
    size: int | None = None

    @property
    def name(self) -> str:
        return f"{self.halves.name}-pairs"

    def task(self, split: str, index: int) -> Task:
        first, second = (self.halves.task(split, 2 * index + i) for i in range(2))
        identity = f"{self.name}/{split}/{index}"
        return Task(
            id=identity, prompt=first.prompt, meta={"halves": (first, second)}, domain=self.name
        )
