"""The arm that does nothing: the start of the others, measured as they are."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from palaestra import catalogue
from palaestra.ledger.measures import AT_TEMPERATURE
from palaestra.rollout.collect import Sample
from palaestra.run.evaluation import attempt_tasks, sampled_scores
from palaestra.types import Result, stage

if TYPE_CHECKING:
    from palaestra.run.context import RunContext


@stage
class Untrained:
    """A run without a step. It samples the held-out tasks at further temperatures too, where any
    are given; their scores stand in its summary as `at_temperature`.
    """

    temperatures: tuple[float, ...] = ()

    async def run(self, ctx: RunContext) -> Result:
        ctx.plan = plan = replace(ctx.plan, steps=0)
        result = await ctx.train(catalogue.recipe("grpo"))
        found: dict[str, Any] = {}
        for t in self.temperatures:
            sample = Sample(n=plan.samples, temperature=t)
            groups = await attempt_tasks(ctx, plan.evaluate, sample, label="eval samples")
            found[f"{t:g}"] = sampled_scores(groups, plan.samples)
        return replace(result, metrics=result.metrics | ({AT_TEMPERATURE: found} if found else {}))
