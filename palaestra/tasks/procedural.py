"""What the procedural tasks share: splits, the answer line, and where a working goes wrong.

An answer is a text whose last line is `= ANSWER`; the lines before it are visible steps, if any.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from palaestra.abilities import Demonstrates, Habit, source_of
from palaestra.errors import UserError
from palaestra.types import Message, Task, Tasks, rng_of, seed_of

ANSWER_PREFIX = "= "
TEST_SHARE = 8  # one problem in so many belongs to the test split
REDRAWS = 1000
FIRST = {"ArithmeticChain": "Chain", "ConstraintTasks": "Constraints", "CompareAnswers": "Compare"}
RENAMED = re.compile(rf"\b({'|'.join(FIRST)})\(")


def split_of(problem: str) -> str:
    """The split a problem belongs to, by its hash: the same one whatever stage drew it."""
    return "test" if seed_of(("split", problem)) % TEST_SHARE == 0 else "train"


def question_task(
    name: str, question: str, answer: Any, meta: Mapping[str, Any] | None = None
) -> Task:
    """A task of one question; `draw_task` gives it its identity."""
    return Task(
        id="",
        prompt=(Message(role="user", content=question),),
        answer=answer,
        meta=meta or {},
        domain=name,
    )


def draw_task(
    source: Any, split: str, index: int, draw: Callable[[np.random.Generator], Task]
) -> Task:
    """The task number `index` of a split: drawn again until its problem belongs there."""
    if split not in ("train", "test"):
        raise UserError(f"{source.name} has no split {split!r}; use 'train' or 'test'")
    for attempt in range(REDRAWS):
        task = draw(rng_of((stream_of(source), split, index, attempt)))
        if split_of(task.prompt[0].content) == split:
            return _with_id(task, f"{source.name}/{split}/{index}")
    raise UserError(
        f"{source!r} has too few problems for a {split} split; make it harder or its numbers larger"
    )


def stream_of(source: Any) -> str:
    """The name of a source's random stream: its settings, under the name that its class had first.

    So a class that is renamed draws the same problems.
    """
    return RENAMED.sub(lambda match: f"{FIRST[match[1]]}(", repr(source))


def _with_id(task: Task, name: str) -> Task:
    return Task(id=name, prompt=task.prompt, answer=task.answer, meta=task.meta, domain=task.domain)


def answer_lines(text: object) -> list[str]:
    """The lines of an answer; what is not text has none."""
    return text.strip().splitlines() if isinstance(text, str) else []


def final_answer(text: str) -> str | None:
    """The answer on the last line of `text`; None if the last line is no answer line."""
    lines = answer_lines(text)
    return (
        lines[-1][len(ANSWER_PREFIX) :].strip()
        if lines and lines[-1].startswith(ANSWER_PREFIX)
        else None
    )


def exact_match(text: str, task: Task) -> float:
    """1.0 if the final answer of `text` is the task's answer, letter by letter, else 0.0."""
    return float(final_answer(text) == str(task.answer))


def format_answer(steps: Sequence[str], answer: Any) -> str:
    """An answer of the embedded problems as text: the steps, a line each, then `= answer`."""
    return "\n".join([*steps, f"{ANSWER_PREFIX}{answer}"])


def first_wrong_line(text: str, steps: Sequence[str], answer: Any) -> int | None:
    """Which line of a working is the first wrong one, from 0; None if all are right.

    The answer line may come early (a guess). A working that stops before its answer line is wrong
    where that line is missing.
    """
    lines = answer_lines(text)
    for at, line in enumerate(lines):
        if line.startswith(ANSWER_PREFIX):
            return None if line == f"{ANSWER_PREFIX}{answer}" else at
        if at >= len(steps) or line != steps[at]:
            return at
    return len(lines)


def demonstration(tasks: Tasks, task: Task, rng: np.random.Generator, habit: Habit) -> str:
    """How the source itself writes a right answer (of a mixture, the task's part), else the answer
    as text.
    """
    source = source_of(tasks, task)
    if isinstance(source, Demonstrates):
        return source.demonstration(task, rng, habit)
    return str(task.answer)
