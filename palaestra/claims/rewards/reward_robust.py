"""The claim of reward-robust: Reward-robust RLHF: Bayesian reward model ensemble."""

import palaestra as pl
from palaestra.claims.curricula import AFTER, Later
from palaestra.claims.short import ACCURACY, THREE_POINTS
from palaestra.recipes.rewards.reward_robust import ensemble_learner, nominal_learner, prior_heads

HEADS = prior_heads(5)


def three_stages(reward: pl.RewardFn, noise: float = 0.25) -> pl.Pipeline:
    """The two stages, which all arms of a seed share, then PPO on the frozen `reward` of "nominal" and
    "reward". Each stage has problems of its own: else the second would fit its heads where the first has
    learned its labels by heart.
    """
    few, sample = pl.Schedule(prompts=8, steps=400), pl.Sample(n=4)
    start = pl.vary(pl.recipe("ppo", kl=0.02), schedule=few)
    labelled = pl.vary(
        start,
        collect=pl.links(sample, pl.Score(reward=pl.rewards.Noisy(share=noise))),
        learners={"nominal": nominal_learner()},
    )
    scored = pl.vary(
        start,
        draw=Later(AFTER),
        collect=pl.links(sample, pl.Score(reward=pl.Learned("nominal"))),
        learners={"reward": ensemble_learner(HEADS, "total")},
    )
    first = {"nominal": pl.Output("nominal", "nominal")}
    return pl.Pipeline(
        parts={
            "nominal": pl.Part(labelled, shared=True),
            "ensemble": pl.Part(scored, models=first, shared=True),
            "rl": pl.Part(
                pl.vary(
                    start,
                    draw=Later(2 * AFTER),
                    collect=pl.links(sample, pl.Score(reward=reward, shadow=True)),
                ),
                models={**first, "reward": pl.Output("ensemble", "reward")},
            ),
        }
    )


ARMS = {
    "one reward model": three_stages(pl.Learned("nominal")),
    "robust": three_stages(pl.rewards.Robust("reward", HEADS, 0.4)),
    "one head": three_stages(pl.rewards.Robust("reward", HEADS[:1], 1.0)),
    "mean of five": three_stages(pl.rewards.Ensemble("reward", HEADS, pl.rewards.mean_over_heads)),
    "most certain head": three_stages(pl.rewards.Robust("reward", HEADS, 1.0)),
    "worst case": three_stages(pl.rewards.Robust("reward", HEADS, 0.0)),
}

EXPERIMENT = pl.ledger.Experiment(
    words=__file__,
    arms=ARMS,
    expect=pl.ledger.Greater("robust", "one reward model", by=0.03, why=THREE_POINTS),
    reasons=(
        pl.ledger.Needs("one head", "several heads, beside a second stage of learning"),
        pl.ledger.Needs("mean of five", "the worst of the heads instead of their mean"),
        pl.ledger.Needs("most certain head", "the worst of the heads beside the most certain one"),
    ),
    measure=ACCURACY,
    metric="held-out accuracy (temperature 1), by the true reward",
    constants={a: {"rl.optimiser.lr": (5e-5, 1e-4, 2e-4)} for a in ARMS},
    blocks=pl.ledger.TWENTY_SEEDS,
    task="add",
    tokens=8_000,
    evaluate=96,
    samples=8,
    seconds=15.0,
    controls={
        "true reward in training": pl.ledger.Logged("part/gold", last=5),
        "length": pl.ledger.Logged("length", last=5),
    },
)
