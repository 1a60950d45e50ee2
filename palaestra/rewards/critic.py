"""Critics: which steps of an answer are wrong."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Protocol, Self

from palaestra.abilities import FindsMistakes, source_of  # fmt: skip
from palaestra.declared import declare
from palaestra.errors import Fault, UserError
from palaestra.rollout.steps import Step, answer_steps
from palaestra.services.chat.local import LocalModel
from palaestra.types import (
    ChatRequest,
    Episode,
    Group,
    Key,
    Message,
    Task,
    rng_of,
    seed_of,
    stage,
)

if TYPE_CHECKING:
    from palaestra.context import Context, Situation, Source

LEAST_TOKENS = 256  # of a critique whose length follows the answers
WRONG = re.compile(r"wrong steps?:\s*(none|\d+(?:\s*,\s*\d+)*)\s*\.?\s*$", re.IGNORECASE)


class Critic(Protocol):
    """Numbers of the wrong steps, from 0. An answer that cannot be read gives none; a Fault is
    raised as such.
    """

    async def __call__(
        self, ctx: Context, key: Key, task: Task, lines: Sequence[str]
    ) -> frozenset[int]: ...


@stage
class Oracle:
    """The task's own `first_wrong`: the step where the working goes wrong; the steps after it are
    not judged.

    With `noise`, each step's verdict is turned round with that probability.
    """

    noise: float = 0.0

    async def __call__(
        self, ctx: Situation, key: Key, task: Task, lines: Sequence[str]
    ) -> frozenset[int]:
        source = source_of(ctx.bench.tasks, task)
        if not isinstance(source, FindsMistakes):
            raise UserError(
                f"the tasks of {ctx.bench.name!r} cannot tell which step is wrong; let a model be "
                "the critic"
            )
        first = source.first_wrong("\n".join(lines), task)
        turned = rng_of(key).random(len(lines)) < self.noise
        return frozenset(i for i in range(len(lines)) if (i == first) != bool(turned[i]))


@stage
class ModelCritic:
    """A language model reads question, reference answer and numbered steps, and names the wrong
    ones (CAPO's GenPRM).

    Expected at the end of its reply: `wrong steps: 2, 4` or `wrong steps: none`, counted from 1.
    Anything else is a critique that names no step, as are numbers of steps that do not exist. What
    it says never reaches the policy's context.

    Args:
        client: the model, an `Endpoint` or one of the run; the policy as it is unless given.
        max_tokens: of a critique; None = as many as an answer of the run may have, and at least
            256.
    """

    client: Source = LocalModel()
    temperature: float = 1.0
    max_tokens: int | None = LEAST_TOKENS

    def fit_to_run(self, prompts: int, max_tokens: int) -> Self:
        """The length of a critique follows that of an answer where it is open."""
        if self.max_tokens is not None:
            return self
        return replace(self, max_tokens=max(LEAST_TOKENS, max_tokens))

    async def __call__(
        self, ctx: Context, key: Key, task: Task, lines: Sequence[str]
    ) -> frozenset[int]:
        request = ChatRequest(
            messages=(Message(role="user", content=critic_question(task, lines)),),
            temperature=self.temperature,
            max_tokens=self.max_tokens or LEAST_TOKENS,
        )
        reply = await ctx.ask(self.client, request, seed=seed_of(key))
        return read_steps(reply, len(lines))


def critic_question(task: Task, lines: Sequence[str]) -> str:
    """What a critic is asked about the steps of an answer."""
    question = "\n".join(m.text for m in task.prompt)
    numbered = "\n".join(f"{i}. {line}" for i, line in enumerate(lines, start=1))
    return (
        f"question: {question}\nreference answer: {task.answer}\nsolution:\n{numbered}\n"
        'Which steps are wrong? End with "wrong steps: " and their numbers, or "wrong steps: none".'
    )


def read_steps(text: str, n: int) -> frozenset[int]:
    """Step numbers of a reply, from 0; those that do not exist are dropped."""
    match = WRONG.search(text.strip())
    if match is None or match[1].lower() == "none":
        return frozenset()
    return frozenset(i - 1 for i in map(int, match[1].split(",")) if 1 <= i <= n)


@declare(
    facts=(
        ("critiques", tuple, "by critic, the numbers of the steps that it calls wrong"),
        "step_ends",
        "error",
    )
)
@stage
class Critique:
    """Asks the critic `n` times about every episode; the facts keep `critiques` and the `step_ends`
    they speak of.

    A critic's infrastructure failure makes the episode an error: silence is no verdict.
    """

    critic: Critic = Oracle()
    n: int = 4

    async def __call__(self, ctx: Context, key: Key, group: Group) -> Group:
        episodes = await asyncio.gather(
            *(
                self._of(ctx, (*key, i), group.task, e) if e.ok else _keep(e)
                for i, e in enumerate(group.episodes)
            )
        )
        return replace(group, episodes=tuple(episodes))

    async def _of(self, ctx: Context, key: Key, task: Task, e: Episode) -> Episode:
        steps: list[Step] = answer_steps(e, ctx.decode)
        lines = [s.text for s in steps]
        try:
            with ctx.judging():
                step_critiques = await asyncio.gather(
                    *(self.critic(ctx, (*key, i), task, lines) for i in range(self.n))
                )
        except Fault as fault:
            return replace(e, status=f"error:{fault.cause}", facts={**e.facts, "error": str(fault)})
        critiques = tuple(tuple(sorted(s)) for s in step_critiques)
        return replace(
            e,
            facts={
                **e.facts,
                "critiques": critiques,
                "step_ends": tuple((s.row, s.token) for s in steps),
            },
        )


async def _keep(e: Episode) -> Episode:
    return e
