"""Problems that are written for a run: by a program, or by a language model whose answers are
checked.

    writer = ProblemsFromSource()                       # problems that the task's own source writes
    writer = ProblemsByModel(Endpoint("http://...", model="..."))     # a user's model

A writer is asked with an `ProblemOrder`. What it gives are tasks with a verified answer: that of the
source, or one on which most of several solutions agree.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import TYPE_CHECKING, Literal, Protocol

from pydantic import BaseModel

from palaestra.curriculum.arms import arms_of, first_number
from palaestra.curriculum.deduplicate import prompt_text
from palaestra.declared import declare
from palaestra.errors import Fault, UserError
from palaestra.rewards.intrinsic import majority_answer
from palaestra.tasks.mixture import part_task
from palaestra.types import (
    ChatRequest,
    Key,
    Message,
    Task,
    need_at_least,
    rng_of,
    seed_of,
    stage,
    value_class,
)
from palaestra.verifiers.answers.final import extract_answer
from palaestra.verifiers.answers.short import stated_answer

if TYPE_CHECKING:
    from palaestra.context import Context, Judging, Situation, Source

RESERVED = 1 << 24  # a source's problems from here on are written ones: no run draws so many


@value_class
class ProblemOrder:
    """`n` problems of a domain, about some concepts or out of a document, in the style of
    examples.
    """

    domain: str
    n: int
    concepts: tuple[str, ...] = ()
    document: str = ""
    examples: tuple[Task, ...] = ()


class ProblemWriter(Protocol):
    """Called with (ctx, key, order); gives as many tasks as are asked for, or fewer where some do
    not pass its checks.
    """

    async def __call__(self, ctx: Context, key: Key, order: ProblemOrder) -> list[Task]: ...


@stage
class ProblemsFromSource:
    """The problems that the domain's own source makes, `first` and on after the run's first one,
    which no draw reaches: a program in place of a model, whose answers are right. Concepts and
    documents are not read.
    """

    first: int = RESERVED

    async def __call__(self, ctx: Situation, key: Key, order: ProblemOrder) -> list[Task]:
        parts = {part.name: part for part in arms_of(ctx.bench.tasks)}
        part = parts.get(order.domain, ctx.bench.tasks if len(parts) == 1 else None)
        if part is None:
            raise UserError(
                f"no source writes problems of {order.domain!r}; there are {', '.join(parts)}"
            )
        at = first_number(ctx, part) + self.first
        at += int(rng_of((*key, "written")).integers(1 << 20))
        problems = [part_task(part, "train", at + i) for i in range(order.n)]
        return [task for task in problems if task.answer is not None]


class WrittenProblem(BaseModel):
    """What a model is asked for."""

    problem: str


class ProblemRating(BaseModel):
    """What a judge of problems is asked for."""

    rating: Literal["perfect", "acceptable", "bad"]


ASKED = (
    "Write one problem of the kind {domain}{about}. It must have one answer that can be checked, "
    "and must hold all that is needed to solve it. Do not solve it."
)
JUDGED = "Is this problem well-posed, true to facts and solvable? Rate it perfect, acceptable or bad.\n\n"


@declare(columns=(("votes", float, "the share of answers that agree"), "concepts"))
@stage
class ProblemsByModel:
    """Problems that a language model writes, one a call, with the answer on which its solutions
    agree.

    A problem is kept where, in this order: one of `judges` rates it "perfect" and all others at
    least "acceptable" (none = no such test), and the commonest of `votes` answers has at least
    `agree` of the votes and shares its place with no other. The share stands in the task's column
    `votes`: an answer by majority may be wrong. A domain may have a source, whose check then judges
    replies to the task; else its name goes with the task, for a reward that tells domains apart.

    Args:
        client: who writes.
        solver: who answers; None = the same.
        judges: who rates.
        temperature: of the writing and the solutions.
    """

    client: Source
    solver: Source | None = None
    judges: tuple[Source, ...] = ()
    votes: int = 8
    agree: float = 0.5
    temperature: float = 1.0
    max_tokens: int = 1024

    def __post_init__(self) -> None:
        need_at_least(self, votes=1, agree=0)

    async def __call__(self, ctx: Judging, key: Key, order: ProblemOrder) -> list[Task]:
        problems = await asyncio.gather(*(self._one(ctx, (*key, i), order) for i in range(order.n)))
        return [task for task in problems if task is not None]

    async def _one(self, ctx: Judging, key: Key, order: ProblemOrder) -> Task | None:
        """One problem with its answer; None where it passes no test, or was written in no form."""
        try:
            request = self._request(self._question(order))
            made = await ctx.ask_for(self.client, request, WrittenProblem)
        except Fault as fault:
            if fault.cause != "chat-format":
                raise
            return None
        text = made.problem.strip()
        if not text or not await self._is_good(ctx, text):
            return None
        answer, share = await self._answer(ctx, key, text)
        if answer is None or share < self.agree:
            return None
        return Task(
            id=f"written/{seed_of(('written', text))}",
            prompt=(Message(role="user", content=text),),
            answer=answer,
            meta={"votes": share, "concepts": order.concepts},
            domain=order.domain,
        )

    def _question(self, order: ProblemOrder) -> str:
        about = f" that joins these concepts: {'; '.join(order.concepts)}" if order.concepts else ""
        lines = [ASKED.format(domain=order.domain, about=about)]
        if order.document:
            lines.append(f"It is to be answered from this text:\n{order.document}")
        lines += [f"An example of the style:\n{prompt_text(t)}" for t in order.examples]
        return "\n\n".join(lines)

    def _request(self, text: str) -> ChatRequest:
        return ChatRequest(
            messages=(Message(role="user", content=text),),
            temperature=self.temperature,
            max_tokens=self.max_tokens,
        )

    async def _is_good(self, ctx: Judging, text: str) -> bool:
        asked = (ctx.ask_for(j, f"{JUDGED}{text}", ProblemRating) for j in self.judges)
        ratings = [r.rating for r in await asyncio.gather(*asked)]
        return not ratings or ("perfect" in ratings and "bad" not in ratings)

    async def _answer(self, ctx: Judging, key: Key, text: str) -> tuple[str | None, float]:
        solver, request = self.solver or self.client, self._request(text)
        seeds = [seed_of((*key, "vote", i)) % (1 << 31) for i in range(self.votes)]
        replies = await asyncio.gather(*(ctx.ask(solver, request, seed=s) for s in seeds))
        return agreed_answer(replies, text)


def agreed_answer(replies: Sequence[str], problem: str = "") -> tuple[str | None, float]:
    """The commonest final answer of several solutions and its share of them, as for
    `majority_answer`: what is boxed or announced, else the last number.
    """
    answers = [stated_answer(r) or extract_answer(r, "0", problem) for r in replies]
    return majority_answer([a.strip() if a else None for a in answers])
