"""The ways a question can be put, and what can be said after a wrong answer. The tiny model has met
all of them but notes, the small agent all.

A question is the last message of the user in a task's prompt, of which procedural domains have one;
everything here is text around it.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace

from palaestra.tasks.procedural import ANSWER_PREFIX, question_task
from palaestra.types import Message, Task

THINK_STEPWISE = Message(role="system", content="think step by step")
ANSWER_AT_ONCE = Message(role="system", content="answer at once")
SUMMARISE = Message(role="user", content="write down what was found")  # notes are its reply
UNSURE_ANSWER = f"{ANSWER_PREFIX}?"  # how the tiny model says that it does not know


def question_message(task: Task) -> Message:
    """The last message of the user in the task's prompt."""
    return next(m for m in reversed(task.prompt) if m.role == "user")


def question_text(task: Task) -> str:
    """Its text. Raises UserError where it holds a picture: in text alone that would be lost."""
    return question_message(task).text


def plain_question(task: Task) -> str:
    """The question without the instruction that a recipe put behind it."""
    text = question_text(task)
    return text.removesuffix(task.instruction).rstrip() if task.instruction else text


def rephrase(task: Task, content: str) -> Task:
    """The same problem in other words; what was said before the question stays."""
    at = max(i for i, m in enumerate(task.prompt) if m.role == "user")
    asked = replace(task.prompt[at], content=content)
    return replace(task, prompt=(*task.prompt[:at], asked, *task.prompt[at + 1 :]))


def add_instruction(task: Task, system: Message) -> Task:
    """The task with a system message before its prompt."""
    return replace(task, prompt=(system, *task.prompt))


FORM_MARK = re.compile(r"<[a-z]+>|\\\\[a-z]+\{")


def ask_for_form(task: Task, instruction: str) -> Task:
    """The task with an instruction behind its question. It stays as it is where it has a system
    message, or where its prompt has a mark of the instruction, such as <think> or \\boxed{, itself.
    """
    asked = next((m for m in reversed(task.prompt) if m.role == "user"), None)
    if asked is None or any(m.role == "system" for m in task.prompt):
        return task
    text = "\n".join(m.content for m in task.prompt)
    if instruction in text or any(mark in text for mark in FORM_MARK.findall(instruction)):
        return task
    rephrased = rephrase(task, f"{asked.content.rstrip()}\n\n{instruction}")
    return replace(rephrased, instruction=instruction)


def add_hint(task: Task, steps: Sequence[str]) -> Task:
    """The question with the first steps of its working. The reply is expected to repeat them and go
    on.
    """
    return _behind(task, ["hint:", *steps]) if steps else task


def _behind(task: Task, lines: Sequence[str]) -> Task:
    return rephrase(task, "\n".join([question_message(task).content, *lines]))


def add_summary(task: Task, notes: Sequence[str]) -> Task:
    """The question with what was found of it before, a line each: an episode goes on from its
    notes.
    """
    return _behind(task, ["found:", *notes]) if notes else task


def add_examples(task: Task, solved: Sequence[tuple[Task, str]]) -> Task:
    """The question after worked ones."""
    examples = [f"example:\n{question_text(t)}\n{answer}" for t, answer in solved]
    return rephrase(task, "\n".join([*examples, "now:", question_text(task)])) if solved else task


STOP = "###STOP###"  # with which a simulated user ends a talk


def retry() -> Message:
    return Message(role="user", content="wrong, try again")


def critique(at: int) -> Message:
    """`at` counts from 0, as `first_wrong` does."""
    return Message(role="user", content=f"line {at + 1} is wrong, try again")


def reveal_answer(answer: object) -> Message:
    return Message(role="user", content=f"wrong, it is {answer}, try again")


def judging_task(task: Task, answer: str, right: bool) -> Task:
    """Is this answer right? The verdict is the line `= right` or `= wrong`."""
    meta = {"judged": task, "text": answer}
    return question_task(
        "judge", f"judge:\n{question_text(task)}\n{answer}", "right" if right else "wrong", meta
    )


def comparison_task(task: Task, first: str, second: str, better: int) -> Task:
    """Which of two final answers is right? The verdict is the line `= 1` or `= 2`."""
    meta = {"judged": task, "texts": (first, second)}
    return question_task(
        "compare", f"compare:\n{question_text(task)}\n1 {first}\n2 {second}", str(better), meta
    )


def posing_task(domain: str) -> Task:
    """Asks for a problem of a domain instead of an answer."""
    return question_task("pose", f"pose {domain}", None)
