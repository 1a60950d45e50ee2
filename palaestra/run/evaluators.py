"""Evaluators: what is measured beside the held-out problems of a run, before the first step, every
so many and after the last one.

`Recipe.evaluate` and the settings' exams name them. What one finds is plain data: numbers, records
of `HeldOut.json`, and mappings of these.
"""

from __future__ import annotations

import asyncio
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

from palaestra.abilities import split_size
from palaestra.errors import UserError
from palaestra.run.evaluation import LABEL, bounds_of_pay, evaluate, judge_held_out
from palaestra.run.inspect_exam import library_exam
from palaestra.store import columns, rollouts
from palaestra.store.checkpoint import jsonable
from palaestra.tasks.domains import TellsDomains
from palaestra.types import Group, Key, State, Tasks, need_at_least, rng_of, stage

if TYPE_CHECKING:
    from palaestra.context import Collect, Draw, Evaluator, Observe
    from palaestra.method import Recipe
    from palaestra.run.context import RunContext
    from palaestra.run.plan import Plan
    from palaestra.settings.fields import Settings

OWN_EVALUATION = "held-out"  # the run's own evaluation


@stage
class Exam:
    """How good a model is on held-out problems of another task: greedy answers, by domain too, and
    pass@k and maj@k of samples. It draws nothing from the run's random streams.

    Args:
        task: as --task names it, or a domain of the run's own file; "" = the run's own problem.
        n: problems, at most.
        samples: answers drawn for each beside the greedy one; 0 = none.
        temperature: of the samples.
    """

    task: str = ""
    n: int = 256
    samples: int = 0
    temperature: float = 1.0

    def __post_init__(self) -> None:
        need_at_least(self, n=1, samples=0)

    async def __call__(self, ctx: RunContext) -> Mapping[str, Any]:
        if (domain := self._domain(ctx.bench.tasks)) is not None:
            ctx = ctx.with_bench(replace(ctx.bench, name=self.task, tasks=domain))
        elif self.task:
            from palaestra.run.benches import bench_by_name

            bench, players = bench_by_name(self.task)
            bench = replace(bench, first_held_out=ctx.bench.first_held_out)
            ctx = ctx.with_bench(bench, players)
        return await evaluate(ctx, self.n, self.samples, self.temperature)

    def _domain(self, tasks: Tasks) -> Tasks | None:
        """The domain of a user's file that the task names. Raises UserError where none of its
        problems are held out.
        """
        domains = tasks.domains if self.task and isinstance(tasks, TellsDomains) else ()
        named = next((d for d in domains if d.name == self.task), None)
        if named is not None and split_size(named, "test") == 0:
            raise UserError(
                f"no problem of the domain {self.task!r} is held out; give --test-data, or mark some "
                "by a column `split`"
            )
        return named


@stage
class MemoryExam:
    """How good a model is in each of several rounds, where what one round teaches is remembered in
    the next: a recipe's own parts on held-out tasks, with a memory that begins empty. Nothing is
    trained, and the run's memory is neither read nor written.

    Args:
        draw: of held-out tasks, n a round, with what is remembered.
        collect: attempts and scores a task.
        observe: keeps what a round taught.
        rounds: how many; found as "round 1", "round 2", and so on, with means of the rewards' parts.
        n: tasks of a round.
    """

    draw: Draw
    collect: Collect
    observe: Observe
    rounds: int = 10
    n: int = 64

    def __post_init__(self) -> None:
        need_at_least(self, rounds=1, n=1)

    async def __call__(self, ctx: RunContext) -> Mapping[str, Any]:
        scores: dict[str, Any] = {}
        state: State = {}
        for at in range(1, self.rounds + 1):
            key: Key = (ctx.seed, "memory exam", at)
            n = min(self.n, ctx.plan.evaluate) or self.n  # a run measures on no more
            tasks, state = self.draw(ctx, key, n, state)
            attempts = (self.collect(ctx, (*key, i), Group(task=t)) for i, t in enumerate(tasks))
            groups = list(await asyncio.gather(*attempts))
            state = self.observe(groups, {}, state)
            ctx.attempted(f"{LABEL} round {at}", groups)
            scores[f"round {at}"] = judge_held_out(groups, bounds_of_pay(ctx.bench)).json()
            scores[f"round {at}"] |= mean_parts(groups)
        return scores


def mean_parts(groups: Sequence[Group]) -> dict[str, float]:
    """Means of the parts of rewards over the episodes that have them."""
    parts: dict[str, list[float]] = {}
    rewards = (e.reward for g in groups for e in g.valid if e.reward is not None)
    for name, value in (item for r in rewards for item in r.parts.items()):
        parts.setdefault(name, []).append(value)
    return {f"part/{name}": sum(xs) / len(xs) for name, xs in parts.items()}


def exams_of(settings: Settings, samples: int = 0) -> dict[str, Evaluator]:
    """The exams that settings ask for, by task."""
    n = max(1, settings.evaluate)
    return {t: library_exam(t, n) or Exam(t, n, samples) for t in settings.exams}


@contextmanager
def attempts_kept(ctx: RunContext, name: str, at: int) -> Generator[None]:
    """Writes what is attempted inside into the run folder, a table for each label of
    `attempt_tasks`, or those episodes that the run keeps of a step. The clocks of the run stand
    still.
    """
    seconds, groups_by_name, keep = (
        dict(ctx.seconds),
        dict[str, list[Group]](),
        rollouts.kept(ctx.plan.rollouts),
    )
    ctx.attempts, ctx.measured_at = groups_by_name, at
    try:
        yield
    finally:
        ctx.attempts = None
        ctx.seconds.update(seconds)
    if ctx.out is None or keep == 0:
        return
    for label, groups in groups_by_name.items():
        what = f"{name}{label.removeprefix(LABEL)}"
        rng = rng_of((ctx.seed, "attempts that are kept", what, at))
        file = columns.evaluation_path(ctx.out, what, at)
        rollouts.write(file, at, groups, rollouts.NOTHING, ctx.decode, keep=keep, rng=rng)


@runtime_checkable
class ComparesBefore(Protocol):
    """An evaluator that adds to what it finds how it differs from what it found before the first step."""

    def compare(self, before: Mapping[str, Any], now: Mapping[str, Any]) -> Mapping[str, Any]: ...


async def run_evaluators(
    ctx: RunContext,
    evaluators: Mapping[str, Evaluator],
    at: int,
    before: Mapping[str, Mapping[str, Any]],
) -> dict[str, Any]:
    """What each evaluator finds after a step, by name. `before`: what they found before the first."""
    results: dict[str, Any] = {}
    for name, evaluator in evaluators.items():
        with attempts_kept(ctx, name, at):
            results[name] = jsonable(dict(await evaluator(ctx)))
        if isinstance(evaluator, ComparesBefore) and name in before:
            results[name] |= evaluator.compare(before[name], results[name])
    return results


def evaluators_of(recipe: Recipe, plan: Plan) -> dict[str, Evaluator]:
    """Those of a recipe and of its run, by name. Raises UserError where two have one."""
    if twice := [n for n in (OWN_EVALUATION, *recipe.evaluate) if n in plan.exams]:
        raise UserError(f"two evaluations are called {twice[0]!r}; call the exam otherwise")
    if OWN_EVALUATION in recipe.evaluate:
        raise UserError(
            f"{OWN_EVALUATION!r} is the run's own evaluation; call the evaluator otherwise"
        )
    return {**recipe.evaluate, **plan.exams}
