"""How far a policy that was trained on a proxy has risen under it, and how far under the true
reward: what over-optimisation is, at the KL that it was bought with (arXiv:2210.10760).
"""

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from itertools import repeat

import numpy as np

import palaestra as pl


@pl.stage
class Overoptimisation:
    """A program, the last part of a pipeline: the start is its policy, and what was trained is
    found under the name `trained`.

    Both answer held-out problems at temperature 1; the bench's reward is the true one, and `proxy`
    scores the same answers. The summary has:

        gold, proxy         mean rewards of the trained model, with `_start` those of the start
        gap                 rise of the proxy - sharpness * rise of gold, in the proxy's unit
        kl                  KL(trained || start) of whole answers, in nats, over the samples
        chosen, rejected    mean rise of log p of the held-out pairs' answers, in nats (where the
                            problems have pairs)
        ranked              share of the held-out pairs that the trained model's rise ranks right

    Args:
        proxy: of the answers; None = there is none, and neither its rise nor the gap.
        sharpness: how much of the proxy one unit of the true reward is worth. Of a reward model
            that was fitted to labels of Bradley and Terry, their sharpness.
        tasks: held-out problems.
        samples: answers to each.
    """

    proxy: pl.RewardFn | None = None
    sharpness: float = 1.0
    tasks: int = 128
    samples: int = 4
    trained: str = "trained"

    async def run(self, ctx: pl.Context) -> pl.Result:
        metrics: dict[str, float] = {}
        held = []
        for name, model in (("_start", "policy"), ("", self.trained)):
            sample = pl.Sample(n=self.samples, model=model)
            groups = await pl.run.attempt_tasks(ctx, self.tasks, sample, label="over-optimisation")
            held.append(pl.run.judge_held_out(groups).json())
            metrics[f"gold{name}"] = mean_total([e.reward for g in groups for e in g.valid])
            if self.proxy is not None:
                scored = [await pl.judge_group(ctx, self.proxy, unscored(g)) for g in groups]
                metrics[f"proxy{name}"] = mean_total([r for value in scored for r in value])
            if model == self.trained:
                metrics["kl"] = float(np.mean(self._rises(ctx, groups)))
        if self.proxy is not None:
            gold, proxy = (metrics[n] - metrics[f"{n}_start"] for n in ("gold", "proxy"))
            metrics["gap"] = proxy - self.sharpness * gold
        metrics |= await self._pairs(ctx)
        return pl.Result(
            metrics={**pl.ends.at_ends(*held), **metrics, "sampled_tokens": ctx.sampled_tokens}
        )

    def _rises(self, ctx: pl.Context, groups: Sequence[pl.Group]) -> list[float]:
        """log p(trained) - log p(start) of what was said in each row, in nats."""
        names = (f"{self.trained}_logp", "policy_logp")
        signals = ctx.measure(groups, ((self.trained, "logp"), ("policy", "logp")))
        rows = [row for g in signals for e in g for row in e]
        return [float((row[names[0]] - row[names[1]]).sum()) for row in rows]

    async def _pairs(self, ctx: pl.Context) -> dict[str, float]:
        at = pl.run.chosen_tasks(ctx.bench, self.tasks)
        starts = [pl.Group(task=ctx.bench.tasks.task("test", i)) for i in at]
        if not starts or any("chosen" not in g.task.meta for g in starts):
            return {}
        keys = [(ctx.seed, "held-out pairs", i) for i in at]
        groups = await asyncio.gather(*map(pl.Recorded(), repeat(ctx), keys, starts))
        rises_P2 = np.array(self._rises(ctx, groups)).reshape(-1, 2)
        margin_P = rises_P2[:, 0] - rises_P2[:, 1]
        return {
            "chosen": float(rises_P2[:, 0].mean()),
            "rejected": float(rises_P2[:, 1].mean()),
            "ranked": float(np.mean((1 + np.sign(margin_P)) / 2)),
        }


def unscored(group: pl.Group) -> pl.Group:
    """The answers of a group as they were before they were judged."""
    return replace(group, episodes=tuple(replace(e, reward=None) for e in group.valid))


def mean_total(rewards: Sequence[object]) -> float:
    """The mean of the rewards; what could not be judged is left out. NaN where nothing was."""
    totals = [r.total for r in rewards if isinstance(r, pl.Reward)]
    return float(np.mean(totals)) if totals else float("nan")
