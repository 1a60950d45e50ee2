"""Which questions a model answers from memory: the boundary of its knowledge."""

from __future__ import annotations

from dataclasses import replace
from typing import Protocol, runtime_checkable

import numpy as np

from palaestra.context import Context
from palaestra.curriculum.arms import count_tasks, first_number
from palaestra.curriculum.difficulty import pass_rates
from palaestra.declared import declare
from palaestra.errors import UserError
from palaestra.rollout.collect import Sample
from palaestra.types import Key, State, Task, World, need_at_least, rng_of, stage

ENDLESS = 64  # questions that are asked of a source without an end
MOST = 4096  # questions that are asked of a file, unless `candidates` says how many


@runtime_checkable
class ClosesBook(Protocol):
    """A world of questions with sources that can be asked without them, to see what a model knows."""

    def closed(self) -> World:
        """The same questions, answered from memory."""
        ...


@declare(
    columns=(
        ("from_memory", bool, "whether the start answered it without the documents at least once"),
    )
)
@stage
class KnowledgeBoundary:
    """Draws questions of which half are known and half are not, with the column "from_memory".

    Before the first draw the policy answers `candidates` questions `n` times each without the sources
    of the world. A question is known where one answer was right (IKEA, arXiv:2505.07596, and its
    released data). Each kind is drawn in an order of its own, again from the start where it ends.
    Where all are of one kind, all are drawn from it, and the run says so.

    Args:
        n: answers to each question.
        candidates: questions that are asked, spread over a file that has more; None = all of a file, but
            at most 4096, and 64 of a source without an end.
        share: of the known ones among those drawn; None = as they come, whatever their kind.

    Raises:
        UserError: the world cannot be asked without sources.
    """

    n: int = 16
    candidates: int | None = None
    share: float | None = 0.5

    def __post_init__(self) -> None:
        need_at_least(self, n=1)
        if self.share is not None and not 0 <= self.share <= 1:
            raise UserError(f"KnowledgeBoundary: share is 0 to 1, not {self.share}")

    @property
    def probes(self) -> str:
        """What is sampled before the first step, for people."""
        return f"{self.n} to each of {self.candidates or f'up to {MOST}'} questions"

    async def __call__(
        self, ctx: Context, key: Key, n: int, state: State
    ) -> tuple[list[Task], State]:
        if "known" not in state:
            state = {**state, **await self._ask(ctx, (*key, "boundary")), "drawn": [0, 0]}
        kinds = [state["unknown"], state["known"]]
        drawn = list(state["drawn"])
        tasks = list[Task]()
        for _ in range(n):
            kind = self._next_kind(drawn, [len(numbers) for numbers in kinds])
            number = kinds[kind][drawn[kind] % len(kinds[kind])]
            drawn[kind] += 1
            task = ctx.bench.tasks.task("train", first_number(ctx) + number)
            tasks.append(replace(task, meta={**task.meta, "from_memory": bool(kind)}))
        return tasks, {**state, "drawn": drawn}

    def _next_kind(self, drawn: list[int], sizes: list[int]) -> int:
        """1 = known: the kind that lags behind its share of what was drawn."""
        if 0 in sizes:
            return int(sizes[0] == 0)
        share = sizes[1] / sum(sizes) if self.share is None else self.share
        return int(drawn[1] < share * (sum(drawn) + 1) - 1e-9)

    async def _ask(self, ctx: Context, key: Key) -> dict[str, list[int]]:
        """The numbers of the known and of the unknown questions, shuffled."""
        world = ctx.bench.world
        if not isinstance(world, ClosesBook):
            raise UserError(
                "what the model knows is measured by questions without documents; give the questions "
                "with --data and the documents with --docs"
            )
        numbers = self._numbers(ctx.bench.tasks.size)
        asked, first = len(numbers), first_number(ctx)
        tasks = [ctx.bench.tasks.task("train", first + i) for i in numbers]
        ctx.say(
            f"note: {asked} questions are answered {self.n} times each without documents, {asked * self.n:,} "
            "answers, before the first step; draw.candidates and draw.n say how many"
        )
        closed = ctx.with_bench(replace(ctx.bench, world=world.closed()))
        rate_N = np.nan_to_num(await pass_rates(closed, key, tasks, Sample(n=self.n)))
        order = rng_of((*key, "order")).permutation(asked).tolist()
        known = [numbers[i] for i in order if rate_N[i] > 0]
        unknown = [numbers[i] for i in order if rate_N[i] == 0]
        ctx.say(
            f"{len(known)} of {asked} questions are answered from memory, {len(unknown)} are not"
        )
        if self.share is not None and not (known and unknown):
            kind = "known" if known else "unknown"
            ctx.say(f"note: all questions are {kind}, so they cannot be balanced")
        return {"known": known, "unknown": unknown}

    def _numbers(self, size: int | None) -> list[int]:
        """Which questions of a source of this size are asked."""
        most = MOST if size is not None and self.candidates is None else self.candidates
        asked = count_tasks(most, size, ENDLESS)
        return [i if size is None else i * size // asked for i in range(asked)]
