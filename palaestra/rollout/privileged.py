"""Privileged context: a model that measures reads more of a task than the policy that answered it.

    Learner(needs=(("teacher", "vocab_logp"),), privileged={"teacher": Revealed()})

The prompt of a row is put as a `Rewrite` puts it, for that model alone; what it says of the tokens
behind the prompt stands at their places in the row (self-distillation with the solution,
arXiv:2601.18734, or with another attempt, arXiv:2601.20802). A rewrite sees the group with the
episode that is read first.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from palaestra.abilities import split_size
from palaestra.context import Rewrite
from palaestra.errors import UserError
from palaestra.rollout.hints import has_working
from palaestra.rollout.recorded import written_answer
from palaestra.tasks.phrasing import add_examples, question_message, rephrase
from palaestra.types import Group, Row, Segment, Task, Tasks, rng_of, stage

if TYPE_CHECKING:
    from palaestra.chat.dialect import Chat
    from palaestra.context import Context


@stage
class Revealed:
    """The question with its right answer behind it; None where the task has none."""

    def __call__(self, ctx: Context, group: Group, rng: np.random.Generator) -> Task | None:
        task = group.task
        if task.answer is None or task.answer == "":
            return None
        return rephrase(task, f"{question_message(task).content}\nanswer:\n{task.answer}")


@stage
class Demonstrated:
    """The question behind its own worked answer, whole, as a worked example: the column
    `demonstration`, else what the task's source writes; None where there is neither.
    """

    def __call__(self, ctx: Context, group: Group, rng: np.random.Generator) -> Task | None:
        tasks, task = ctx.bench.tasks, group.task
        if not has_working(tasks, task):
            return None
        return add_examples(task, [(task, written_answer(tasks, task, rng, "work").strip())])


@stage
class ShownColumn:
    """The question with a column of its record behind it: a hint, a worked solution, what a tool
    returned, a document; None where the record has none.

    Args:
        column: of the data; what is no text there is shown as JSON.

    Raises:
        UserError: no record has the column.
    """

    column: str

    def __call__(self, ctx: Context, group: Group, rng: np.random.Generator) -> Task | None:
        task, text = group.task, shown_text(group.task, self.column)
        if not text:
            check_column(ctx.bench.tasks, self.column)
            return None
        return rephrase(task, f"{question_message(task).content}\n{self.column}:\n{text}")


def shown_text(task: Task, column: str) -> str:
    """What a task's record has in a column, as text."""
    value = task.answer if column == "answer" else task.meta.get(column)
    if value is None or isinstance(value, str):
        return (value or "").strip()
    return json.dumps(value, ensure_ascii=False)


def check_column(tasks: Tasks, column: str, looked_at: int = 64) -> None:
    """Raises UserError where none of the first training tasks has a column."""
    first = [tasks.task("train", i) for i in range(min(split_size(tasks, "train") or 1, looked_at))]
    if not any(shown_text(t, column) for t in first):
        names = sorted({k for t in first for k in t.meta})
        raise UserError(
            f"no record has the column {column!r} that is to be shown; there are "
            f"{', '.join(names) or 'none beside prompt and answer'}"
        )


@stage
class PeerSolution:
    """The question behind another attempt of the group that is right, drawn at random, as a worked
    example; None where no other one is.
    """

    def __call__(self, ctx: Context, group: Group, rng: np.random.Generator) -> Task | None:
        others = [e for e in group.episodes[1:] if e.ok and e.text.strip() and e.solved]
        if not others:
            return None
        text = others[int(rng.integers(len(others)))].text.strip()
        return add_examples(group.task, [(group.task, text)])


@dataclass(frozen=True)
class PrivilegedReader:
    """How a model reads the rows of a step where `rewrite` puts their prompts; rows stay as they are
    where it has nothing to show, nobody answered, or they would have more than `room` tokens.

    Raises:
        UserError: a row does not begin with its task's prompt, as where a world or tools say more.
    """

    ctx: Context
    rewrite: Rewrite
    room: int

    def __call__(self, group: Group, number: int, row: Row) -> Row:
        task = self.task(group, number, row)
        if task is None:
            return row
        more = with_prompt(self.ctx, row, group.task, task)
        return more if len(more.context()) <= self.room else row

    def task(self, group: Group, number: int, row: Row) -> Task | None:
        """The task as it is put for the model; None = as it is."""
        if not any(s.trained for s in row.segments):
            return None
        first = group.episodes[number]
        others = (e for i, e in enumerate(group.episodes) if i != number)
        return self.rewrite(
            self.ctx, replace(group, episodes=(first, *others)), rng_of((*row.key, "privileged"))
        )


def with_prompt(ctx: Context, row: Row, task: Task, other_task: Task) -> Row:
    """The row behind the prompt of `other_task` instead of its own, that of `task`."""
    model = next((s.policy for s in row.segments if s.policy), "policy")
    dialect = ctx.engine(model).dialect
    begun, reply = behind_prompt(row, task, dialect)
    opening = [Segment(ids=begun, author="forced")] if begun else []
    return replace(row, segments=(*prompt_of(other_task, dialect), *opening, *reply))


def prompt_of(task: Task, dialect: Chat) -> list[Segment]:
    """The segments of a task's prompt, up to where a reply to it begins."""
    pieces = dialect.extend(task.prompt, first=True, closed=False)
    # what the template begins of a reply is no part of the prompt
    return [Segment(ids=p.ids, pictures=p.pictures) for p in pieces if p.author != "forced"]


def behind_prompt(
    row: Row, task: Task, dialect: Chat
) -> tuple[tuple[int, ...], tuple[Segment, ...]]:
    """What stands in a row behind its task's prompt: ids that the template begins the reply with, and
    the segments from the reply on. Raises UserError, see `PrivilegedReader`.
    """
    own = tuple(i for s in prompt_of(task, dialect) for i in s.ids)
    heard = next(n for n, s in enumerate(row.segments) if s.replies or s.trained)
    seen = tuple(i for s in row.segments[:heard] for i in s.ids)
    if seen[: len(own)] != own:
        raise UserError(
            f"task {task.id!r}: its row does not begin with its prompt, so a model cannot be shown more "
            "there; privileged context is for questions of one's own, without tools or a world that "
            "speaks first"
        )
    return seen[len(own) :], row.segments[heard:]


def back_in_place(read_T: np.ndarray, row: Row) -> np.ndarray:
    """What was measured of a row as it was read, [T' of it, ...], at the places of the row as it is,
    [T, ...], 0 in its prompt; features of whole rows, [1, D], as they are.
    """
    view = row.view()
    T = len(view.ids_T)
    if read_T.ndim == 2 and len(read_T) == 1 and T != 1:
        return read_T
    start = int(view.trained_T.argmax())  # the first token that is learned from
    placed_T = np.zeros((T, *read_T.shape[1:]))
    placed_T[start:] = read_T[len(read_T) - T + start :]
    return placed_T
