"""The ways a question can be put, and what can be said after a wrong answer. The tiny model has met all of them.

A question is the first message of a task whose domain is a procedural one; everything here is text around it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from palaestra.toys.base import ANSWER, asked
from palaestra.types import Message, Task

STEPWISE = Message(role="system", content="think step by step")
AT_ONCE = Message(role="system", content="answer at once")
UNSURE = f"{ANSWER}?"  # how the tiny model says that it does not know


def question(task: Task) -> str:
    return next(m.content for m in task.prompt if m.role == "user")


def put(task: Task, content: str) -> Task:
    """The same problem in other words."""
    prompt = tuple(replace(m, content=content) if m.role == "user" else m for m in task.prompt)
    return replace(task, prompt=prompt)


def instructed(task: Task, system: Message) -> Task:
    return replace(task, prompt=(system, *task.prompt))


def hinted(task: Task, steps: Sequence[str]) -> Task:
    """The question with the first steps of its working. The reply is expected to repeat them and go on."""
    return put(task, "\n".join([question(task), "hint:", *steps])) if steps else task


def with_examples(task: Task, solved: Sequence[tuple[Task, str]]) -> Task:
    """The question after worked ones."""
    shown = [f"example:\n{question(t)}\n{answer}" for t, answer in solved]
    return put(task, "\n".join([*shown, "now:", question(task)])) if solved else task


def retry() -> Message:
    return Message(role="user", content="wrong, try again")


def critique(at: int) -> Message:
    """`at` counts from 0, as `first_wrong` does."""
    return Message(role="user", content=f"line {at + 1} is wrong, try again")


def told(answer: object) -> Message:
    return Message(role="user", content=f"wrong, it is {answer}, try again")


def judging(task: Task, answer: str, right: bool) -> Task:
    """Is this answer right? The verdict is the line `= right` or `= wrong`."""
    meta = {"judged": task, "text": answer}
    return asked("judge", f"judge:\n{question(task)}\n{answer}", "right" if right else "wrong", meta)


def comparing(task: Task, first: str, second: str, better: int) -> Task:
    """Which of two final answers is right? The verdict is the line `= 1` or `= 2`."""
    meta = {"judged": task, "texts": (first, second)}
    return asked("compare", f"compare:\n{question(task)}\n1 {first}\n2 {second}", str(better), meta)


def posing(domain: str) -> Task:
    """Asks for a problem of a domain instead of an answer."""
    return asked("pose", f"pose {domain}", None)
