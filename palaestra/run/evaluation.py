"""How good a model is on held-out problems."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from typing import TYPE_CHECKING, Any

from palaestra.abilities import split_size
from palaestra.errors import UserError
from palaestra.rollout.collect import Sample, Score
from palaestra.stats import Interval, majority_at_k, mean_interval, pass_at_k, proportion
from palaestra.step import check_some
from palaestra.types import SOLVED_TOTAL, Group

if TYPE_CHECKING:
    from palaestra.context import Context


async def attempt_tasks(
    ctx: Context, n: int, sample: Sample, *, split: str = "test", label: str = "eval"
) -> list[Group]:
    """Up to `n` tasks of a split, each attempted as `sample` says and scored. Does not touch the
    run's random streams.
    """
    score, size = Score(), split_size(ctx.bench.tasks, "test")

    async def one(i: int) -> Group:
        key = (ctx.seed, label, i)
        return await score(
            ctx, key, await sample(ctx, key, Group(task=ctx.bench.tasks.task(split, i)))
        )

    return list(await asyncio.gather(*(one(i) for i in range(n if size is None else min(n, size)))))


def accuracy(groups: list[Group]) -> Interval:
    """Share of solved episodes (Wilson), or, where rewards are not 0 or 1, the mean reward (t).
    Errors are left out.
    """
    totals = [e.total for g in groups for e in g.valid]
    check_some(groups)
    if not totals:
        raise UserError(
            "no episode of the evaluation could be scored; look at the errors in the rollouts"
        )
    if all(t in (0.0, 1.0) for t in totals):
        return proportion(int(sum(totals)), len(totals))
    return mean_interval(totals)


async def greedy_accuracy(
    ctx: Context, n: int, model: str = "policy"
) -> tuple[Interval, list[Group]]:
    """Accuracy of greedy answers on held-out tasks.

    Args:
        n: how many of them.
        model: of the run, by name.

    Returns:
        The share that is right with its 95% interval, and the groups of one answer each.
    """
    groups = await attempt_tasks(ctx, n, Sample(n=1, temperature=0.0, model=model))
    return accuracy(groups), groups


async def evaluate(ctx: Context, n: int, k: int = 1, temperature: float = 1.0) -> dict[str, Any]:
    """Greedy accuracy, and from `k` samples a task: mean, pass@j for powers of two up to k, maj@k;
    by domain as well.
    """
    interval, groups = await greedy_accuracy(ctx, n)
    result: dict[str, Any] = {
        "greedy": interval.json(),
        "errors": sum(not e.ok for g in groups for e in g.episodes),
    }
    domains: dict[str, list[Group]] = defaultdict(list)
    for g in groups:
        domains[g.task.domain or ctx.bench.name].append(g)
    result["domains"] = {d: accuracy(gs).json() for d, gs in sorted(domains.items())}
    if k > 1:
        sampled = await attempt_tasks(
            ctx, n, Sample(n=k, temperature=temperature), label="eval samples"
        )
        result |= sampled_scores(sampled, k)
    return result


def sampled_scores(groups: list[Group], k: int) -> dict[str, Any]:
    """Mean accuracy, pass@j and maj@k over tasks; a task counts with the samples that are no
    errors.
    """
    solved = [(len(g.valid), sum(e.total >= SOLVED_TOTAL for e in g.valid)) for g in groups]
    js = [j for j in (1 << i for i in range(k.bit_length())) if j <= k]
    found: dict[str, Any] = {}
    for j in js:
        values = [pass_at_k(n, c, j) for n, c in solved if n >= j]
        if values:
            found[f"pass@{j}"] = mean_interval(values).json()
    votes = [
        majority_at_k(
            [vote_key(e.text) for e in g.valid], [e.total >= SOLVED_TOTAL for e in g.valid]
        )
        for g in groups
        if g.valid
    ]
    return found | {f"maj@{k}": mean_interval(votes).json()}


def vote_key(text: str) -> str:
    """What is voted on: the last line that says something, without case and spaces."""
    lines = [line for line in text.splitlines() if line.strip()]
    return lines[-1].strip().casefold() if lines else ""
