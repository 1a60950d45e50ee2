"""What people or models wrote beside a problem: a plan, knowledge that it needs, and its sub-problems in
order, and how each is shown with the question.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from palaestra.errors import UserError
from palaestra.tasks.phrasing import question_message, rephrase
from palaestra.types import Task, value_class


@value_class
class SubProblem:
    """A part of a problem, and its answer."""

    question: str
    answer: str


def add_plan(task: Task, plan: str) -> Task:
    """The question with a plan behind it."""
    return _behind(task, f"Plan:\n{plan}")


def add_knowledge(task: Task, knowledge: str) -> Task:
    """The question with facts behind it."""
    return _behind(task, f"Known facts:\n{knowledge}")


def subproblem_task(task: Task, parts: Sequence[SubProblem], at: int) -> Task:
    """Asks for one part alone, with the right answers of those before it."""
    solved = "".join(f"{p.question}: {p.answer}\n" for p in parts[:at])
    known = f"Solved so far:\n{solved}\n" if solved else ""
    asked = _behind(task, f"{known}Answer this part alone:\n{parts[at].question}")
    return replace(asked, id=f"{task.id}#part-{at + 1}", answer=parts[at].answer)


def _behind(task: Task, text: str) -> Task:
    return rephrase(task, f"{question_message(task).content}\n\n{text}")


def written_note(task: Task, column: str) -> str:
    """The text of a column; of a list of texts a line each; "" where the row has none. Raises UserError for
    what is no text.
    """
    value = task.meta.get(column)
    if value is None:
        return ""
    lines = [value] if isinstance(value, str) else value
    if not isinstance(lines, Sequence) or not all(isinstance(x, str) for x in lines):
        raise UserError(f"row {task.id!r}: its `{column}` is a text, or a list of texts")
    return "\n".join(lines).strip()


def subproblems_of(task: Task) -> list[SubProblem]:
    """Those of the column `subproblems`, in order; none where the row has none. Raises UserError for another
    form.
    """
    value = task.meta.get("subproblems")
    if value is None:
        return []
    if not isinstance(value, Sequence) or isinstance(value, str):
        raise _no_parts(task)
    return [_part_of(x, task) for x in value]


def _part_of(x: object, task: Task) -> SubProblem:
    if isinstance(x, Mapping):
        x = [x.get("question"), x.get("answer")]
    if not isinstance(x, Sequence) or isinstance(x, str) or len(x) != 2:
        raise _no_parts(task)
    question, answer = x
    if not isinstance(question, str) or not isinstance(answer, str | int | float):
        raise _no_parts(task)
    return SubProblem(question=question.strip(), answer=str(answer))


def _no_parts(task: Task) -> UserError:
    return UserError(
        f"row {task.id!r}: its `subproblems` are a list in order, each with its question and answer: "
        '[{"question": "How many eggs are left?", "answer": "9"}, ...]'
    )
