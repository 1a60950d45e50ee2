"""What can be shown of a task beyond its prompt: a share of its working, worked examples, what is
said of a wrong attempt, criteria; and what must not be shown.
"""

from __future__ import annotations

import re
from dataclasses import replace
from typing import TYPE_CHECKING, Literal, TypeAlias

import numpy as np

from palaestra.abilities import Demonstrates, FindsMistakes, source_of
from palaestra.errors import UserError
from palaestra.rollout.guide import GuidanceSource
from palaestra.rollout.recorded import written_answer
from palaestra.schedule import check_bounds
from palaestra.tasks.phrasing import (
    add_examples,
    critique,
    question_message,
    rephrase,
    retry,
    reveal_answer,
)
from palaestra.types import Group, Message, Task, Tasks, need_at_least, stage

if TYPE_CHECKING:
    from palaestra.context import Context

ENDLESS = 1 << 31  # tasks that are drawn from where a source has no end
Unit: TypeAlias = Literal["steps", "tokens", "characters", "lines"]


@stage
class Working:
    """The beginning of the task's written answer.

    `share` is of its steps (its lines but the answer's), its tokens or its characters, rounded half
    to even as GHPO does; of "lines" it is their number: 1 is the first line alone, the control for a
    hint that only switches a habit. `shuffled` takes the working of another training task: the
    control for what a hint says. Nothing where nobody wrote how the answer is found: a part of the
    bare answer would give that away.
    """

    share: float = 0.5
    unit: Unit = "steps"
    shuffled: bool = False

    def __post_init__(self) -> None:
        check_bounds("Working.share", self.share, least=0)

    def __call__(self, ctx: Context, group: Group, rng: np.random.Generator) -> str:
        task = another_task(ctx, group.task, rng) if self.shuffled else group.task
        if not has_working(ctx.bench.tasks, task):
            return ""
        text = written_answer(ctx.bench.tasks, task, rng, "work")
        if self.unit == "characters":
            return text[: round(self.share * len(text))]
        if self.unit == "tokens":
            dialect = ctx.engine().dialect
            ids = dialect.encode_text(text)
            return dialect.decode(ids[: round(self.share * len(ids))])
        steps = text.strip().splitlines()[:-1]
        n = round(self.share * len(steps)) if self.unit == "steps" else int(self.share)
        return "".join(f"{line}\n" for line in steps[:n])


def has_working(tasks: Tasks, task: Task) -> bool:
    """Whether the task's column `demonstration`, or its source, says how its answer is found."""
    return bool(task.meta.get("demonstration")) or isinstance(source_of(tasks, task), Demonstrates)


@stage
class HintColumn:
    """The task's column `hint`, written beforehand; where it has none, what `otherwise` says."""

    otherwise: GuidanceSource | None = None

    def __call__(self, ctx: Context, group: Group, rng: np.random.Generator) -> str:
        written = str(group.task.meta.get("hint") or "")
        return written or (self.otherwise(ctx, group, rng) if self.otherwise else "")


@stage
class Unleaked:
    """The guidance, but nothing where the task's answer stands in it as a word of its own."""

    guidance: GuidanceSource

    def __call__(self, ctx: Context, group: Group, rng: np.random.Generator) -> str:
        text = self.guidance(ctx, group, rng)
        return "" if leaks_answer(text, group.task.answer) else text


def leaks_answer(text: str, answer: object) -> bool:
    """Whether the answer stands in a text, between what are no letters or digits."""
    answer_text = str(answer).strip() if answer is not None else ""
    return bool(answer_text and re.search(rf"(?<!\w){re.escape(answer_text)}(?!\w)", text))


@stage
class Hinted:
    """The question with guidance behind it, as a hint."""

    guidance: GuidanceSource = Working()

    def __call__(self, ctx: Context, group: Group, rng: np.random.Generator) -> Task | None:
        text = self.guidance(ctx, group, rng).strip("\n")
        task = group.task
        return rephrase(task, f"{question_message(task).content}\nhint:\n{text}") if text else None


@stage
class Examples:
    """The question behind `n` worked ones, other training tasks."""

    n: int = 1

    def __post_init__(self) -> None:
        need_at_least(self, n=1)

    def __call__(self, ctx: Context, group: Group, rng: np.random.Generator) -> Task | None:
        others = [another_task(ctx, group.task, rng) for _ in range(self.n)]
        worked = [(t, written_answer(ctx.bench.tasks, t, rng, "work")) for t in others]
        return add_examples(group.task, worked)


@stage
class Feedback:
    """The question, a wrong attempt of the group, drawn at random, and what is said of it: that it
    is wrong ("verdict"), where ("critique"), or the right answer ("answer"). None where no attempt
    is wrong. Only tasks whose source finds mistakes have critiques.
    """

    kind: Literal["verdict", "critique", "answer"] = "verdict"

    def __call__(self, ctx: Context, group: Group, rng: np.random.Generator) -> Task | None:
        wrong = [e for e in group.valid if e.text and not e.solved]
        if not wrong:
            return None
        text, task = wrong[int(rng.integers(len(wrong)))].text.strip(), group.task
        replies = self._of(ctx, task, text)
        attempt = Message(role="assistant", content=text, author="policy")
        return replace(task, prompt=(*task.prompt, attempt, replies))

    def _of(self, ctx: Context, task: Task, text: str) -> Message:
        if self.kind == "verdict":
            return retry()
        if self.kind == "answer":
            return reveal_answer(task.answer)
        source = source_of(ctx.bench.tasks, task)
        if not isinstance(source, FindsMistakes):
            raise UserError(
                f"nobody knows where answers to {source.name} go wrong, so there is no critique of "
                'them; use kind="verdict" or "answer"'
            )
        at = source.first_wrong(text, task)
        return retry() if at is None else critique(at)


@stage
class Criteria:
    """The question behind a share of what its answer is judged by, the column `criteria`: texts, of
    which so many are drawn, half to even (RuscaRL's scaffold, arXiv:2508.16949). None where it is
    none of them. They are a system message, or ("prompt") stand behind the question: a chat template
    that writes a system message of its own would put theirs in its place, which `Hide` refuses.
    """

    share: float = 0.5
    place: Literal["system", "prompt"] = "system"

    def __post_init__(self) -> None:
        check_bounds("Criteria.share", self.share, least=0, most=1)

    def __call__(self, ctx: Context, group: Group, rng: np.random.Generator) -> Task | None:
        texts = [str(c) for c in group.task.meta.get("criteria") or ()]
        chosen = sorted(rng.permutation(len(texts))[: round(self.share * len(texts))].tolist())
        if not chosen:
            return None
        rules = "\n".join(["The answer is judged by:", *(f"- {texts[i]}" for i in chosen)])
        task = group.task
        if self.place == "prompt":
            return rephrase(task, f"{question_message(task).content}\n{rules}")
        return replace(task, prompt=(Message(role="system", content=rules), *task.prompt))


def another_task(ctx: Context, task: Task, rng: np.random.Generator) -> Task:
    """A training task at random, not the same one; of a mixture, one of the same source."""
    source = source_of(ctx.bench.tasks, task)
    for _ in range(100):
        other = source.task("train", int(rng.integers(source.size or ENDLESS)))
        if other.prompt != task.prompt:
            return other
    raise UserError(f"{source.name} has no other training task than {task.id!r}")
