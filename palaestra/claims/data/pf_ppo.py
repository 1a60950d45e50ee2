"""The claim of pf-ppo: PPO on samples from where a reward model can be trusted."""

from collections.abc import Callable
from dataclasses import replace

import numpy as np

import palaestra as pl
from palaestra.recipes.data.pf_ppo import Scored, filtered

N = 4
RATES = (1e-5, 3e-5, 1e-4)  # a step is eight updates: at 3e-4 the start loses its form


@pl.stage
class UnsureMiddle:
    """A reward model that is right where it is sure and knows nothing where it is not: 1 or -1 by the
    bench's verdict, but with probability `share` a number between -`most` and `most`, whatever the
    answer is worth.
    """

    share: float = 0.7
    most: float = 0.9

    async def __call__(self, ctx: pl.Context, group: pl.Group) -> list[pl.Reward | pl.Fault]:
        if ctx.bench.reward is None:
            raise pl.UserError(
                f"UnsureMiddle needs a task that checks answers; {ctx.bench.name!r} pays by itself"
            )
        rewards = await pl.judge_group(ctx, ctx.bench.reward, group)
        rng = pl.rng_of(("unsure", ctx.seed, ctx.step, group.task.id))
        unsure_N = rng.random(len(rewards)) < self.share
        said_N = rng.uniform(-self.most, self.most, len(rewards))
        return [
            r
            if isinstance(r, pl.Fault)
            else replace(r, total=float(x) if unsure else 2 * r.total - 1)
            for r, unsure, x in zip(rewards, unsure_N, said_N, strict=True)
        ]


@pl.stage
class MixedUp:
    """The weights that `weight` gives, to other samples of the batch: as uneven, and no matter of the
    reward.
    """

    weight: Callable[[np.ndarray], np.ndarray]

    def __call__(self, reward_N: np.ndarray) -> np.ndarray:
        return pl.rng_of(("mixed up", *reward_N.tolist())).permutation(self.weight(reward_N))


def arm(recipe: pl.Recipe) -> pl.Recipe:
    """Pays what the reward model says; the true reward is logged beside it."""
    collect = pl.links(pl.Sample(n=N), pl.Score(reward=UnsureMiddle(), shadow=True))
    return pl.vary(recipe, collect=collect, schedule=pl.Schedule(prompts=16, steps=400))


def drawn(form: Scored) -> pl.Recipe:
    """PPO on samples that are drawn anew by a form."""
    return filtered(pl.recipe("ppo"), form)


def mixed_up() -> pl.Recipe:
    recipe = drawn("max_min")
    (learner,) = recipe.learners.values()
    assert isinstance(learner.credit, pl.credit.Resampled)
    return pl.vary(
        recipe, credit=pl.credit.Resampled(learner.credit.credit, MixedUp(learner.credit.weight))
    )


ARMS = {
    "all samples": arm(pl.recipe("ppo")),
    "pow": arm(drawn("pow")),
    "max min": arm(drawn("max_min")),
    "max random": arm(drawn("max_random")),
    "mixed up": arm(mixed_up()),
}

EXPERIMENT = pl.ledger.Experiment(
    words=__file__,
    arms=ARMS,
    expect=pl.ledger.Greater(
        "max min", "all samples", by=0.03, why="about half of the mean of the paper's three gains"
    ),
    reasons=(pl.ledger.Needs("mixed up", "that samples of reliable rewards are drawn"),),
    vetoes={"pass@8": pl.ledger.Veto(pl.ledger.Final("sampled_after.pass@8.mean"), falls=0.03)},
    measure=pl.ledger.Final("sampled_after.pass@1.mean"),
    metric="held-out accuracy (temperature 1)",
    tuned={"optimiser.lr": RATES},
    task="add(d=6)",
    tokens=14_000,
    evaluate=96,
    samples=8,
    seconds=15.0,
    controls={
        "true reward of samples": pl.ledger.Logged("part/gold"),
        "what the reward model says": pl.ledger.Logged("reward"),
        "entropy": pl.ledger.Logged("entropy_sampled"),
    },
)
