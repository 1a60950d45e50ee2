"""The claim of reward-robust: Reward-robust RLHF: Bayesian reward model ensemble."""

import palaestra as pl
from palaestra.recipes.rewards.reward_robust import ensemble_learner, nominal_learner, prior_heads


def three_stages(reward: pl.RewardFn, noise: float = 0.25) -> pl.Pipeline:
    """The two stages, then PPO on the frozen `reward` of "nominal" and "reward"."""
    few, sample = pl.Schedule(prompts=8, steps=20), pl.Sample(n=4)
    start = pl.vary(pl.recipe("ppo", kl=0.02), schedule=few)
    labelled = pl.vary(
        start,
        collect=pl.links(sample, pl.Score(reward=pl.Noisy(share=noise))),
        learners={"nominal": nominal_learner()},
    )
    scored = pl.vary(
        start,
        collect=pl.links(sample, pl.Score(reward=pl.Learned("nominal"))),
        learners={"reward": ensemble_learner(prior_heads(5), "total")},
    )
    first = {"nominal": pl.Output("nominal", "nominal")}
    return pl.Pipeline(
        parts={
            "nominal": pl.Part(labelled),
            "ensemble": pl.Part(scored, models=first),
            "rl": pl.Part(
                pl.vary(start, collect=pl.links(sample, pl.Score(reward=reward, shadow=True))),
                models={**first, "reward": pl.Output("ensemble", "reward")},
            ),
        }
    )


EXPERIMENT = pl.Experiment(
    claim="With reward models of few and noisy labels the true reward ends higher under the robust "
    "reward than under one model.",
    arms={
        "one reward model": three_stages(pl.Learned("nominal")),
        "mean of five": three_stages(pl.Ensemble("reward", prior_heads(5), pl.mean_over_heads)),
        "most certain head": three_stages(pl.Robust("reward", prior_heads(5), 1.0)),
        "robust": three_stages(pl.Robust("reward", prior_heads(5), 0.4)),
        "worst case": three_stages(pl.Robust("reward", prior_heads(5), 0.0)),
    },
    expect=pl.Greater("robust", "one reward model"),
    falsified_if="the robust reward gains less than two points of true reward over the one reward "
    "model, over five seeds",
    measure=pl.Logged("part/gold"),
    metric="true reward of samples, last ten steps of PPO",
    task="add",
    tokens=10_000,
    evaluate=32,
    note="A quarter of the labels is wrong. The heads share a trunk, as in the paper, so their "
    "doubts are understated. 800 steps in the paper, about twenty here, in which a reward model "
    "may not yet be over-optimised.",
)
