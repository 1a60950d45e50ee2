"""Safe RLHF (arXiv:2310.12773) as a recipe: PPO with a second critic for a cost whose mean is held at a limit.

J = mean cost - limit,    ln lambda <- ln lambda + eta lambda J
r_t = r - (beta / 2) KL_t,    c_t = c + (beta / 2) KL_t,    A_r, A_c = GAE of each by its own critic
A = (A_r - lambda A_c) / (1 + lambda)
"""

import copy
import math
from dataclasses import replace
from typing import ClassVar

from torch import Tensor

import palaestra as pl

COST, CRITIC = "cost", "value-of-cost"
MULTIPLIER = "ln lambda"


@pl.stage
class LongAnswer:
    """A cost that needs no model: 1 for an answer of more than `longest` characters, else 0."""

    longest: int = 16

    async def __call__(self, ctx: pl.Context, group: pl.Group) -> list[pl.Reward]:
        texts = [pl.response_text(e) for e in group.episodes]
        return [pl.Reward(total=float(len(t) > self.longest)) for t in texts]


@pl.stage
class WithCost:
    """What an answer costs, as the part "cost" of its reward, whose total stays. What the cost cannot be told of is
    a fault of the episode.
    """

    cost: pl.RewardFn

    async def __call__(self, ctx: pl.Context, key: pl.Key, group: pl.Group) -> pl.Group:
        costs = await pl.judge_group(ctx, self.cost, group)
        made = [self._priced(e, c) for e, c in zip(group.episodes, costs, strict=True)]
        return replace(group, episodes=tuple(made))

    def _priced(self, episode: pl.Episode, cost: pl.Reward | pl.Fault) -> pl.Episode:
        if isinstance(cost, pl.Fault) or episode.reward is None:
            return pl.rollout.apply_reward(episode, cost) if episode.ok else episode
        parts = {**episode.reward.parts, COST: cost.total}
        return replace(episode, reward=replace(episode.reward, parts=parts))


@pl.stage
class SafeAdvantage:
    """The advantage of the Lagrangian; the multiplier is part of the state of the credit.

    Args:
        limit: of the mean cost.
        eta: the step of ln lambda.
        start: lambda before the first step; 0 = the cost is not looked at.
        kl: beta.
    """

    limit: float = 0.0
    eta: float = 0.1
    start: float = 1.0
    kl: float = 0.0
    equal: ClassVar[bool] = True  # answers of equal reward differ in what they cost

    def __call__(self, x: pl.Values, table: pl.Table) -> pl.Values:
        costs = [float(e.reward.parts.get(COST, 0.0)) if e.reward else 0.0 for e in table.episodes]
        log = table.state.get(MULTIPLIER, math.log(self.start) if self.start else None)
        if log is not None and costs:
            log = log + self.eta * math.exp(log) * (sum(costs) / len(costs) - self.limit)
            table.remember(MULTIPLIER, log)
        multiplier = 0.0 if log is None else math.exp(log)
        gain = pl.Gae(kl=self.kl / 2)(x, table)
        priced = copy.copy(table)
        priced.columns = {}
        priced.episodes = [
            replace(e, reward=None if e.reward is None else replace(e.reward, total=c, events=()))
            for e, c in zip(table.episodes, costs, strict=True)
        ]
        dear = pl.Gae(kl=-self.kl / 2, head=CRITIC)(x, priced)
        table.add_column("cost_return", priced.columns["return"])
        table.track("lambda", pl.Values(level="token", x_N=0 * gain.x_N + multiplier))
        both = (gain.x_N - multiplier * dear.x_N) / (1 + multiplier)
        return pl.Values(level="token", x_N=both)


@pl.stage
class CostLoss(pl.Algebra):
    """The loss of the critic of costs."""

    loss: pl.ValueLoss = pl.ValueLoss(clip=0.2, head=CRITIC)

    @property
    def needs(self) -> tuple[str, ...]:
        return self.loss.needs

    def __call__(self, out: pl.Outputs, batch: pl.Batch) -> tuple[Tensor, dict[str, Tensor]]:
        columns = {**batch.columns, "return": batch["cost_return"]}
        loss, metrics = self.loss(out, replace(batch, columns=columns))
        return loss, {"cost_error": metrics["value_error"]}


def safe_rlhf(cost: pl.RewardFn, limit: float, kl: float) -> pl.Recipe:
    """PPO under a limit of the mean cost."""
    ppo = pl.recipe("ppo", kl=kl)
    learner = ppo.learners["policy"]
    return pl.vary(
        ppo,
        collect=pl.links(pl.Sample(n=8), pl.Score(), WithCost(cost)),
        credit=pl.chain(SafeAdvantage(limit=limit, kl=kl), pl.Center("batch"), pl.Scale("batch")),
        objective=pl.Clipped(reduce="tokens") + 0.5 * pl.ValueLoss(clip=0.2) + 0.5 * CostLoss(),
        needs=(*learner.needs, ("policy", CRITIC)),
        heads=("value", CRITIC),
    )
