"""A verifier as the reward of a run: `--reward math`."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from palaestra.errors import Fault, UserError
from palaestra.rewards.verify import response_text
from palaestra.tasks.spec import parse_spec
from palaestra.tasks.user_code import with_own_data
from palaestra.types import SOLVED_TOTAL, Episode, Group, Reward, Task, stage
from palaestra.verifiers.base import (
    Judgement,
    KnowsNulls,
    WritesReference,
    judge_response,
    select_fields,
)
from palaestra.verifiers.registry import VERIFIERS, get_verifier, known_entry

if TYPE_CHECKING:
    from palaestra.context import Context


@stage
class Verified:
    """The verifier that `name` names, for every episode. Fields are the task's columns and
    `prompt`, its last user message.

    With `paper`, the total is the part of that name: the reward on its paper's own scale. One that
    reads no answer is refused unless another reward stands `beside` it.
    """

    name: str
    paper: bool = False
    beside: bool = False

    def __post_init__(self) -> None:
        get_verifier(self.name)
        entry = known_entry(self.name)
        if entry is not None and entry.form and not self.beside:
            raise UserError(
                f"--reward {self.name} reads no answer, so any text earns it; add one, e.g. "
                f"{self.name}*0.1+exact"
            )

    @property
    def bounds(self) -> tuple[float, float] | None:
        return None if self.paper else (0.0, 1.0)

    async def __call__(self, ctx: Context | None, group: Group) -> list[Reward | Fault]:
        return await judge_each(self.judge, group)

    def judge(self, text: str, task: Task) -> Reward:
        task = with_own_data(task)
        users = [m.content for m in task.prompt if m.role == "user"]
        given = {"prompt": users[-1] if users else "", **task.meta}
        try:
            return self.reward(judge_response(get_verifier(self.name), text, task.answer, given))
        except UserError as error:
            raise UserError(f"task {task.id!r}: {error}") from None

    def check_gold(self, task: Task) -> None:
        """Raises UserError for an answer, or a field, that the verifier cannot read. Verifiers that
        run programs or ask models are only asked whether all is of the right type.
        """
        users = [m.content for m in task.prompt if m.role == "user"]
        given = {"prompt": users[-1] if users else "", **task.meta}
        for part in parse_spec(self.name, "verifier"):
            verifier, entry = get_verifier(part.text), VERIFIERS.get(part.name)
            if isinstance(verifier, WritesReference):
                verifier.gold_text(task.answer, **select_fields(verifier, given))
            judge_response(verifier, entry.probe if entry else "", task.answer, given)

    def reward(self, judgement: Judgement) -> Reward:
        total = (
            judgement.parts["paper"]
            if self.paper and "paper" in judgement.parts
            else judgement.score
        )
        entry = known_entry(self.name)
        form = entry is not None and entry.form  # it reads no answer, so it knows of none
        solved = None if form else judgement.score >= SOLVED_TOTAL
        return Reward(total=total, parts=dict(judgement.parts), solved=solved)

    @property
    def has_tests(self) -> bool:
        """Whether the verifier judges by tests."""
        return isinstance(get_verifier(self.name), KnowsNulls)

    def null_passes(self, task: Task) -> list[tuple[str, tuple[str, ...]]]:
        """The task's tests, and the candidates that pass each without solving anything."""
        verifier = get_verifier(self.name)
        if not isinstance(verifier, KnowsNulls):
            return []
        try:
            return verifier.null_passes(**select_fields(verifier, task.meta))
        except UserError as error:
            raise UserError(f"task {task.id!r}: {error}") from None

    @property
    def forms(self) -> tuple[str, ...]:
        """How an answer is written as a response."""
        entry = known_entry(self.name)
        form = "{}" if entry is None else entry.put
        if not form:
            raise UserError(
                f"the answers that {self.name} reads are no responses; `palaestra score` judges "
                "responses of your own"
            )
        return (form,)

    def put(self, task: Task) -> str | None:
        """The task's answer as a response; None where an answer is no response."""
        entry = known_entry(self.name)
        form = "" if entry is None else entry.put
        return None if task.answer is None or not form else form.format(self.gold_text(task))

    def gold_text(self, task: Task) -> str:
        """The task's answer as text: as the verifier wants it written where it says so."""
        verifier = get_verifier(self.name)
        try:
            if isinstance(verifier, WritesReference):
                return verifier.gold_text(task.answer, **select_fields(verifier, task.meta))
            return answer_text(task.answer)
        except UserError as error:
            raise UserError(f"task {task.id!r}: {error}") from None


async def judge_each(judge: Callable[[str, Task], Reward], group: Group) -> list[Reward | Fault]:
    """`judge` of every episode, side by side. A fault is that of one episode."""

    def one(episode: Episode) -> Reward | Fault:
        try:
            return judge(response_text(episode), group.task)
        except Fault as fault:
            return fault

    return list(await asyncio.gather(*(asyncio.to_thread(one, e) for e in group.episodes)))


def answer_text(answer: Any) -> str:
    return ", ".join(map(str, answer)) if isinstance(answer, list | tuple) else str(answer)
