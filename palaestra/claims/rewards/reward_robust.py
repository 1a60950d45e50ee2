"""The claim of reward-robust: Reward-robust RLHF: Bayesian reward model ensemble."""

from palaestra.catalogue import recipe
from palaestra.context import RewardFn
from palaestra.ledger.experiment import Experiment, Greater, Logged
from palaestra.pipeline import Output, Part, Pipeline
from palaestra.recipes.rewards.reward_robust import ensemble_learner, nominal_learner, prior_heads
from palaestra.rewards.labels import Noisy
from palaestra.rewards.learned import Ensemble, Learned, Robust, mean_over_heads
from palaestra.rollout.collect import Sample, Score, links
from palaestra.step import Schedule
from palaestra.values import vary


def three_stages(reward: RewardFn, noise: float = 0.25) -> Pipeline:
    """The two stages, then PPO on the frozen `reward` of "nominal" and "reward"."""
    few, sample = Schedule(prompts=8, steps=20), Sample(n=4)
    start = vary(recipe("ppo", kl=0.02), schedule=few)
    labelled = vary(
        start, collect=links(sample, Score(reward=Noisy(share=noise))), learners={"nominal": nominal_learner()}
    )
    scored = vary(
        start,
        collect=links(sample, Score(reward=Learned("nominal"))),
        learners={"reward": ensemble_learner(prior_heads(5), "total")},
    )
    first = {"nominal": Output("nominal", "nominal")}
    return Pipeline(
        parts={
            "nominal": Part(labelled),
            "ensemble": Part(scored, models=first),
            "rl": Part(
                vary(start, collect=links(sample, Score(reward=reward, shadow=True))),
                models={**first, "reward": Output("ensemble", "reward")},
            ),
        }
    )


EXPERIMENT = Experiment(
    claim="With reward models of few and noisy labels the true reward ends higher under the robust reward than under one model.",
    arms={
        "one reward model": three_stages(Learned("nominal")),
        "mean of five": three_stages(Ensemble("reward", prior_heads(5), mean_over_heads)),
        "most certain head": three_stages(Robust("reward", prior_heads(5), 1.0)),
        "robust": three_stages(Robust("reward", prior_heads(5), 0.4)),
        "worst case": three_stages(Robust("reward", prior_heads(5), 0.0)),
    },
    expect=Greater("robust", "one reward model"),
    falsified_if="the robust reward gains less than two points of true reward over the one reward model, over five seeds",
    measure=Logged("part/gold"),
    metric="true reward of samples, last ten steps of PPO",
    task="add",
    tokens=10_000,
    evaluate=32,
    note="A quarter of the labels is wrong. The heads share a trunk, as in the paper, so their doubts are understated. "
    "800 steps in the paper, about twenty here, in which a reward model may not yet be over-optimised.",
)
