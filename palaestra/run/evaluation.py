"""How good a model is on held-out problems."""

from __future__ import annotations

import asyncio
import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from itertools import repeat
from typing import TYPE_CHECKING, Any, TypeAlias

import torch

from palaestra import values
from palaestra.abilities import (
    MeasuresRecords,
    NamesUnit,
    ReplaysRecords,
    bounds_of,
    split_size,
)
from palaestra.context import Bench, Collect
from palaestra.ends import HeldOut
from palaestra.errors import UserError
from palaestra.method import Learner, Recipe
from palaestra.rollout.collect import Sample, Score
from palaestra.rollout.queue import check_some
from palaestra.run.own_verifier import trains_on
from palaestra.stats import (
    Interval,
    best_at_k,
    bounded_interval,
    majority_at_k,
    mean_interval,
    pass_at_k,
    proportion,
    ratio_interval,
    unbounded_interval,
)
from palaestra.types import Batch, Group
from palaestra.update import MEASURE_BUDGET, pack, split
from palaestra.worlds.tools import tool_numbers

if TYPE_CHECKING:
    from palaestra.context import Bench, Context
    from palaestra.run.context import RunContext


LABEL = "eval"  # of greedy answers


async def attempt_tasks(
    ctx: Context, n: int, sample: Collect, *, split: str = "test", label: str = LABEL
) -> list[Group]:
    """Up to `n` tasks of a split, each attempted as `sample` says and scored. Does not touch the
    run's random streams.
    """
    score = Score()

    async def one(i: int) -> Group:
        key = (ctx.seed, label, i)
        return await score(
            ctx, key, await sample(ctx, key, Group(task=ctx.bench.tasks.task(split, i)))
        )

    groups = list(await asyncio.gather(*(one(i) for i in chosen_tasks(ctx.bench, n, split))))
    ctx.attempted(label, groups)
    return groups


def chosen_tasks(bench: Bench, n: int, split: str = "test") -> range:
    """The numbers of up to `n` tasks of a split. Of endless held-out ones they begin where the
    bench says.
    """
    if (size := split_size(bench.tasks, split)) is not None:
        return range(min(n, size))
    first = bench.first_held_out if split == "test" else 0
    return range(first, first + n)


Bounds: TypeAlias = tuple[float, float] | None  # of a reward; None = nobody knows


def judge_held_out(groups: list[Group], bounds: Bounds = None) -> HeldOut:
    """The share of solved episodes (Wilson), or the mean reward, with the interval that its
    `bounds` allow. Errors are left out.
    """
    rewards = [e.reward for g in groups for e in g.valid if e.reward is not None]
    check_some(groups)
    if not rewards:
        raise UserError(
            "no episode of the evaluation could be scored; look at the errors in the rollouts"
        )
    solved = [r.solved for r in rewards if r.solved is not None]
    if len(solved) == len(rewards):
        return HeldOut(of="accuracy", interval=proportion(sum(solved), len(solved)))
    totals = [r.total for r in rewards]
    return HeldOut(of="reward", interval=reward_interval(totals, totals, bounds))


def reward_interval(values_N: Sequence[float], seen: Sequence[float], bounds: Bounds) -> Interval:
    """The mean of values between the lowest and the highest that was `seen`: an interval that stays
    between the bounds where these are known, else one that may leave what was seen.
    """
    if bounds is None:
        return unbounded_interval(values_N, max(1.0, *seen) - min(0.0, *seen))
    return bounded_interval(values_N, min(bounds[0], *seen), max(bounds[1], *seen))


def mean_reward(groups: Sequence[Group], bounds: Bounds) -> HeldOut:
    """The mean of what the answers that could be scored were paid."""
    totals = [e.total for g in groups for e in g.valid if e.reward is not None]
    return HeldOut(of="reward", interval=reward_interval(totals, totals, bounds))


def bounds_of_pay(bench: Bench) -> Bounds:
    """Of what an episode of a bench can earn."""
    return bounds_of(bench.world if bench.reward is None else bench.reward)


async def greedy_held_out(
    ctx: Context, n: int, model: str = "policy"
) -> tuple[HeldOut, list[Group]]:
    """Greedy answers to held-out tasks.

    Args:
        n: how many of them.
        model: of the run, by name.

    Returns:
        How good they are with a 95% interval, and the groups of one answer each.
    """
    groups = await attempt_tasks(ctx, n, Sample(n=1, temperature=0.0, model=model))
    return judge_held_out(groups, bounds_of_pay(ctx.bench)), groups


async def measure_held_out(ctx: RunContext, recipe: Recipe, n: int, answers: bool) -> list[HeldOut]:
    """What a recipe is measured by on up to `n` held-out problems.

    Greedy answers of the policy where it is trained and `answers` can be judged; and where nothing
    is sampled, the held-out records: how many pairs are ranked right and by which margin, or the
    loss of the recorded answers. Where a recipe's own verifier judges, the mean reward as well,
    since it may pay answers that are not wholly right. The rest of the run does not see that it was
    measured.
    """
    records: list[HeldOut] = []
    if answers and "policy" in recipe.learners:
        record, groups = await greedy_held_out(ctx, n)
        graded = record.of == "accuracy" and trains_on(recipe, ctx.bench.reward)
        records = [record, mean_reward(groups, bounds_of_pay(ctx.bench))] if graded else [record]
    if isinstance(recipe.collect, ReplaysRecords) and recipe.collect.recorded:
        seconds = dict(ctx.seconds)
        records += await measure_records(ctx, recipe, n)
        ctx.seconds.update(seconds)
    return records


async def measure_records(ctx: RunContext, recipe: Recipe, n: int) -> list[HeldOut]:
    """Of the first learner whose objective can be measured on held-out records."""
    keys = [(ctx.seed, "held-out records", i) for i in chosen_tasks(ctx.bench, n)]
    starts = [Group(task=ctx.bench.tasks.task("test", key[-1])) for key in keys]
    groups = list(await asyncio.gather(*map(recipe.collect, repeat(ctx), keys, starts)))
    for name, learner in recipe.learners.items():
        parts = (learner.objective, *(x for _, x in values.walk(learner.objective)))
        objective = next((x for x in parts if isinstance(x, MeasuresRecords)), None)
        if objective is None:
            continue
        signals = ctx.measure(groups, learner.needs, learner.privileged)
        examples, _ = learner.credit(groups, signals, {})
        if (batch := pack(examples, name)) is not None:
            unit = objective.margin_unit if isinstance(objective, NamesUnit) else ""
            return summarise_records(measure_units(ctx, name, learner, objective, batch), unit)
    return []


@torch.no_grad()
def measure_units(
    ctx: RunContext, name: str, learner: Learner, objective: MeasuresRecords, batch: Batch
) -> dict[str, list[float]]:
    """What an objective says of all units of a batch."""
    forward, device = ctx.forward(name, learner.objective.needs), ctx.model(name).device
    values: dict[str, list[float]] = defaultdict(list)
    for rows in split(batch, MEASURE_BUDGET, whole_units=True, packed=ctx.model(name).packs):
        part = batch.part(rows).to(device)
        for key, values_U in objective.measures(forward(part), part).items():
            values[key] += values_U.double().tolist()
    return values


def summarise_records(values: Mapping[str, list[float]], unit: str = "") -> list[HeldOut]:
    """Margins of pairs as the share that is ranked right and a mean in their `unit`;
    log-likelihoods as a mean over tokens.

    A margin of 0 is a tie of the model's, and counts one half, as in the area under the ROC curve.
    Pairs that the data call equal (NaN) have no right order, and are left out.
    """
    held: list[HeldOut] = []
    if margins := [x for x in values.get("margin", []) if not math.isnan(x)]:
        ranked = proportion(sum((x > 0) + (x == 0) / 2 for x in margins), len(margins))
        held.append(HeldOut(of="ranking", interval=ranked))
        held.append(HeldOut(of="margin", interval=mean_interval(margins), unit=unit))
    if "nll" in values:
        loss = ratio_interval(values["nll"], values["tokens"])
        held.append(HeldOut(of="loss", interval=loss, unit="nats a token"))
    return held


async def evaluate(ctx: Context, n: int, k: int = 1, temperature: float = 1.0) -> dict[str, Any]:
    """How good greedy answers are, by domain as well where some could be scored, and
    `sampled_scores` of `k` samples a task.
    """
    record, groups = await greedy_held_out(ctx, n)
    result: dict[str, Any] = {
        "greedy": record.json(),
        "errors": sum(not (e.ok or e.unjudged) for g in groups for e in g.episodes),
        **tool_numbers((e for g in groups for e in g.valid), brief=True),
    }
    domains: dict[str, list[Group]] = defaultdict(list)
    for g in groups:
        if any(e.reward is not None for e in g.valid):
            domains[g.task.domain or ctx.bench.name].append(g)
    bounds = bounds_of_pay(ctx.bench)
    result["domains"] = {d: judge_held_out(gs, bounds).json() for d, gs in sorted(domains.items())}
    if k > 1:
        sampled = await attempt_tasks(
            ctx, n, Sample(n=k, temperature=temperature), label="eval samples"
        )
        result |= sampled_scores(sampled, k, bounds)
    return result


def sampled_scores(groups: list[Group], k: int, bounds: Bounds = None) -> dict[str, Any]:
    """Means over tasks, each with the samples that are no errors: pass@j for powers of two up to
    `k` and maj@k; where right and wrong are not known best@j, the expected highest of j rewards.
    """
    tasks = [[e for e in g.valid if e.reward is not None] for g in groups]
    tasks = [es for es in tasks if es]
    js = [1 << i for i in range(k.bit_length()) if 1 << i <= k]
    if judge_held_out(groups).of == "reward":
        totals = [[e.total for e in es] for es in tasks]
        seen = [x for each in totals for x in each]
        best = {j: [best_at_k(x, j) for x in totals if len(x) >= j] for j in js}
        return {
            f"best@{j}": {"of": "reward"} | reward_interval(x, seen, bounds).json()
            for j, x in best.items()
            if x
        }
    right = [[e.solved for e in es] for es in tasks]
    passed = {j: [pass_at_k(len(r), sum(r), j) for r in right if len(r) >= j] for j in js}
    votes = [
        majority_at_k([vote_key(e.text) for e in es], r) for es, r in zip(tasks, right, strict=True)
    ]
    shares = {f"pass@{j}": x for j, x in passed.items() if x} | {f"maj@{k}": votes}
    return {name: {"of": "accuracy"} | bounded_interval(x).json() for name, x in shares.items()}


def vote_key(text: str) -> str:
    """What is voted on: the last line that says something, without case and spaces."""
    lines = [line for line in text.splitlines() if line.strip()]
    return lines[-1].strip().casefold() if lines else ""
