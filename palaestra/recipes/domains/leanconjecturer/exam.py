"""How many held-out theorems a prover proves, and how many groups no answer of which is a proof."""

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

import palaestra as pl
from palaestra.recipes.domains.leanconjecturer.checks import ProofVerdict


@dataclass(frozen=True)
class ProofExam:
    """An evaluator: `n` proofs of each of `tasks` held-out theorems at temperature 1. "pass_1" and "pass_N" are the
    unbiased estimates of pass@1 and pass@n, by the kernel.
    """

    reward: ProofVerdict
    tasks: int = 64
    n: int = 8

    async def __call__(self, ctx: Any) -> Mapping[str, Any]:
        test = [ctx.bench.tasks.task("test", i) for i in pl.run.chosen_tasks(ctx.bench, self.tasks)]
        attempt: Callable[..., Any] = pl.links(pl.Sample(n=self.n), pl.Score(reward=self.reward))
        keys = [(ctx.seed, "proofs", i) for i in range(len(test))]
        groups = await asyncio.gather(
            *(attempt(ctx, key, pl.Group(task=t)) for key, t in zip(keys, test, strict=True))
        )
        counts = [sum(e.is_right() for e in g.valid) for g in groups if g.valid]
        return {
            f"pass_{k}": float(np.mean([pl.stats.pass_at_k(self.n, c, k) for c in counts]))
            for k in {1, self.n}
            if counts
        }


@pl.stage
class ZeroGroups:
    """Leaves "all_zero", the share of groups none of whose answers earned anything: an unprovable or a false
    conjecture, or one that is too hard. Nothing is learned of it.
    """

    def __call__(self, x: pl.Values, table: pl.Table) -> pl.Values:
        zero = [not any(e.total for e in g.episodes if e.reward is not None) for g in table.groups]
        share = np.full(len(table.episodes), float(np.mean(zero)) if zero else 0.0)
        table.track("all_zero", pl.Values(level="episode", x_N=share))
        return x
