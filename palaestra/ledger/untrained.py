"""The arm that does nothing: the start of the others, measured as they are."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from palaestra import catalogue, values
from palaestra.context import Context
from palaestra.ledger.measures import AT_TEMPERATURE
from palaestra.rollout.collect import Sample
from palaestra.rollout.queue import Schedule
from palaestra.run.evaluation import attempt_tasks, sampled_scores
from palaestra.types import Result, stage


@stage
class Untrained:
    """A run without a step. At each of `temperatures` it draws `samples` answers for each of
    `tasks` held-out tasks; their scores stand in its summary as `at_temperature`.
    """

    temperatures: tuple[float, ...] = ()
    tasks: int = 256
    samples: int = 8

    async def run(self, ctx: Context) -> Result:
        still = values.vary(catalogue.recipe("grpo"), schedule=Schedule(steps=0))
        result = await ctx.train(still)
        scores: dict[str, Any] = {}
        for t in self.temperatures:
            sample = Sample(n=self.samples, temperature=t)
            groups = await attempt_tasks(ctx, self.tasks, sample, label="eval samples")
            scores[f"{t:g}"] = sampled_scores(groups, self.samples)
        more = {AT_TEMPERATURE: scores} if scores else {}
        return replace(result, metrics={**result.metrics, **more})
