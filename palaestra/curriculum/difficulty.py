"""How hard tasks are for the policy of today, found out by attempting them.

What is sampled here is in the run's budget as all else is.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from palaestra.curriculum.arms import arms_of, count_tasks, draw_from_arms, first_number
from palaestra.curriculum.prioritised import learnable, probabilities, prompt_length
from palaestra.errors import UserError
from palaestra.rollout.collect import Sample, Score
from palaestra.schedule import check_bounds
from palaestra.tasks.mixture import part_task
from palaestra.types import Group, Key, State, Task, need_at_least, stage

if TYPE_CHECKING:
    from palaestra.context import Context


async def pass_rates(
    ctx: Context, key: Key, tasks: Sequence[Task], sample: Sample | None = None
) -> np.ndarray:
    """[N] the share of solved attempts at each task; NaN where every attempt failed for a reason
    that is not the policy's.

    Args:
        sample: how a task is attempted; None = four times.
    """
    sample, score = sample or Sample(n=4), Score()

    async def one(i: int, task: Task) -> float:
        here = (*key, "probe", i)
        group = await score(ctx, here, await sample(ctx, here, Group(task=task)))
        solved = [e.solved for e in group.valid if e.reward is not None]
        return float(np.mean(solved)) if solved else float("nan")

    return np.array(await asyncio.gather(*(one(i, t) for i, t in enumerate(tasks))))


def inversion_rate(before_N: Sequence[float], now_N: Sequence[float]) -> float:
    """The share of pairs whose order has turned round: NIR = 2 inversions / (m (m - 1)), ADCL
    (arXiv:2505.08364). Pairs that are equal in one of the two are none; 0 for fewer than two.
    """
    before, now = np.sign(np.subtract.outer(before_N, before_N)), np.subtract.outer(now_N, now_N)
    m = len(before)
    return float((before * np.sign(now) < 0).sum() / (m * (m - 1))) if m > 1 else 0.0


@stage
class ProbedArms:
    """Draws every task from an arm of a mixture with p ~ the mean of weight(pass rate) over `tasks`
    fresh tasks of the arm, which are attempted before every `every`-th draw.

    The weight is of tasks, not of arms: an arm of which half is always solved has nothing to teach.
    Where every arm weighs nothing they are drawn alike. A curriculum that looks instead of
    guessing, and pays for it in samples.
    """

    every: int = 5
    tasks: int = 4
    sample: Sample = Sample(n=4)
    weight: Callable[[np.ndarray], np.ndarray] = learnable
    clock: ClassVar[str] = "every"

    def __post_init__(self) -> None:
        need_at_least(self, every=1, tasks=1)

    async def __call__(
        self, ctx: Context, key: Key, n: int, state: State
    ) -> tuple[list[Task], State]:
        arms, draws = arms_of(ctx.bench.tasks), state.get("draws", 0)
        if draws % self.every == 0:
            given = dict(state.get("given", {}))
            given = {arm.name: given.get(arm.name, 0) for arm in arms}
            asked = [
                part_task(arm, "train", first_number(ctx, arm) + given[arm.name] + i)
                for arm in arms
                for i in range(self.tasks)
            ]
            rate_N = await pass_rates(ctx, key, asked, self.sample)
            by_arm = self.weight(rate_N).reshape(len(arms), self.tasks)
            known = [x[np.isfinite(x)] for x in by_arm]
            weights = [float(x.mean()) if len(x) else 0.0 for x in known]
            given = {name: count + self.tasks for name, count in given.items()}
            state = {**state, "given": given, "weights": weights}
        p_A = probabilities(np.array(state["weights"]))
        return draw_from_arms(ctx, key, n, p_A, {**state, "draws": draws + 1})


@stage
class EasyToHard:
    """The first `tasks` training tasks (None = all, 512 of a source without an end) in `batches`
    parts, the easy ones first, then again.

    The order is that of `difficulty`. With `probe` it is 1 - the pass rate of the policy at the
    start, and before each later part the order within it is measured anew with the policy of then;
    what is equally hard stays as it was, and no task changes its part (ADCL, arXiv:2505.08364). The
    state's `inversions` are the shares of pairs that turned round, by part.
    """

    tasks: int | None = 512
    batches: int = 5
    difficulty: Callable[[Task], float] = prompt_length
    probe: Sample | None = None

    def __post_init__(self) -> None:
        need_at_least(self, batches=1)
        check_bounds("EasyToHard.tasks", self.tasks, least=1)
        if self.tasks is not None and self.batches > self.tasks:
            raise UserError(f"EasyToHard: {self.tasks} tasks are too few for {self.batches} parts")

    @property
    def probes(self) -> str:
        """What is sampled before the first step, for people; "" = nothing is."""
        return f"{self.probe.n} to each of {self.tasks or 'all'} tasks" if self.probe else ""

    async def __call__(
        self, ctx: Context, key: Key, n: int, state: State
    ) -> tuple[list[Task], State]:
        state, drawn_tasks = dict(state), list[Task]()
        if "order" not in state:
            size, first = count_tasks(self.tasks, ctx.bench.tasks.size, 512), first_number(ctx)
            every = list(range(first, first + size))
            if self.probe is not None:
                ctx.say(
                    f"note: {size} tasks are tried {self.probe.n} times each, to sort them before the first "
                    "step; draw.tasks says how many are"
                )
            state |= await self._sort(ctx, (*key, "all"), every, {})
        ends = [round(len(state["order"]) * (k + 1) / self.batches) for k in range(self.batches)]
        while len(drawn_tasks) < n:
            at = state.get("cursor", 0)
            place = at % len(state["order"])
            begin, end = next((b, e) for b, e in zip([0, *ends], ends, strict=False) if place < e)
            if self.probe is not None and place == begin and at > 0:
                state |= await self._sort_again(ctx, (*key, begin), begin, end, state)
            some = state["order"][place : min(end, place + n - len(drawn_tasks))]
            drawn_tasks += [ctx.bench.tasks.task("train", i) for i in some]
            state["cursor"] = at + len(some)
        return drawn_tasks, state

    async def _sort(
        self, ctx: Context, key: Key, order: list[int], hard: dict[str, float]
    ) -> dict[str, Any]:
        """The tasks of `order`, easy ones first, and how hard each is by its number."""
        tasks = [ctx.bench.tasks.task("train", i) for i in order]
        if self.probe is None:
            difficulties = [float(self.difficulty(t)) for t in tasks]
        else:
            rate_N = await pass_rates(ctx, key, tasks, self.probe)
            known = [hard.get(str(i), 1.0) for i in order]  # where nothing could be measured
            difficulties = np.where(np.isfinite(rate_N), 1 - rate_N, known).tolist()
        ranked = [order[i] for i in np.argsort(difficulties, kind="stable")]
        return {
            "order": ranked,
            "hard": {**hard, **{str(i): x for i, x in zip(order, difficulties, strict=True)}},
        }

    async def _sort_again(
        self, ctx: Context, key: Key, begin: int, end: int, state: State
    ) -> dict[str, Any]:
        before = state["order"][begin:end]
        difficulties = await self._sort(ctx, key, before, state["hard"])
        old, now = ([h[str(i)] for i in before] for h in (state["hard"], difficulties["hard"]))
        order = [*state["order"][:begin], *difficulties["order"], *state["order"][end:]]
        turned = inversion_rate(old, now)
        ctx.say(
            f"note: {turned:.3f} of the pairs of the next {len(before)} tasks changed their order"
        )
        inversions = [*state.get("inversions", []), turned]
        return {**difficulties, "order": order, "inversions": inversions}
