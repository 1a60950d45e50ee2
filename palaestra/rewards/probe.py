"""How well a trained reward model ranks: the accuracy on pairs of held-out answers,
label by label.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from palaestra.context import RewardFn, Runnable
from palaestra.rewards.labels import Beside, Labels
from palaestra.rollout.collect import Sample, Score, links
from palaestra.types import Group, Result, stage

if TYPE_CHECKING:
    from palaestra.context import Context


@stage
class RankingProbe:
    """A program: runs `train`, then compares `reward` with `labels` on answers of the policy to
    `tasks` held-out problems.

    `asked` pairs a part of the reward ("" = its total) with a label. Two answers to one problem
    that differ in the label are a pair. The metric `ranked` holds the share of pairs in the right
    order for each label, ties a half, and their "mean".
    """

    train: Runnable
    reward: RewardFn
    asked: tuple[tuple[str, str], ...]
    labels: RewardFn = Labels()
    tasks: int = 48
    n: int = 8

    async def run(self, ctx: Context) -> Result:
        result = await self.train.run(ctx)
        collect = links(Sample(n=self.n), Score(reward=self.reward), Beside(self.labels, "label"))
        tasks = [ctx.bench.tasks.task("test", i) for i in range(self.tasks)]
        groups = [
            await collect(ctx, ("probe", ctx.seed, i), Group(task=t)) for i, t in enumerate(tasks)
        ]
        accuracies = {
            label: accuracy([values(g, part, label) for g in groups]) for part, label in self.asked
        }
        known = [x for x in accuracies.values() if np.isfinite(x)]
        ranked = {**accuracies, "mean": float(np.mean(known)) if known else float("nan")}
        return Result(metrics={**result.metrics, "ranked": ranked}, artifacts=result.artifacts)


def values(group: Group, part: str, label: str) -> tuple[np.ndarray, np.ndarray]:
    """[G] scores and [G] labels of the scored episodes."""
    parts = [{"": e.total, **e.reward.parts} for e in group.valid if e.reward is not None]
    return np.array([p[part] for p in parts]), np.array([p[f"label/{label}"] for p in parts])


def accuracy(groups: Sequence[tuple[np.ndarray, np.ndarray]]) -> float:
    """The share of pairs inside groups whose scores stand in the order of their labels; equal
    scores count a half.
    """
    right, n = 0.0, 0
    for score_G, label_G in groups:
        better = label_G[:, None] > label_G[None] + 1e-9
        order = np.sign(score_G[:, None] - score_G[None])
        right, n = right + float(((order + 1) / 2)[better].sum()), n + int(better.sum())
    return right / n if n else float("nan")
