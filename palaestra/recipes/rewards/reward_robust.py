"""Reward-robust RLHF: the reward lies between what an ensemble of reward models says where it is most
certain, and the worst that any of them says.

Five heads on one trunk say a mean mu_h and a standard deviation sd_h each (a Bayesian reward model
ensemble):

    r = w * mu_{h*} + (1 - w) * min_h mu_h,   h* = argmin_h sd_h        (arXiv:2409.15360, eq. 4 and 7)

with PPO and a KL penalty. w = 1 is plain RLHF on the most certain head, w = 0 the worst case; one
head is plain RLHF at any w. The minimum is taken sample by sample, or (`over="batch"`) by the head
whose mean over the step's samples is least. Trained in two stages: a reward model with one head by
Bradley-Terry, then the heads on its scores, each on a resample of its own (the likelihood instead
of the paper's squared error of a sample, whose minimum is sd = 0). All heads have the same target,
so none wins the minimum by its offset. By default both stages run beside the policy, on its own
replies as the reward of the data ranks them; with `pairs="data"` the first learns from recorded pairs,
as in the paper, and the stages run one after the other, each frozen for the next:

    palaestra train reward-robust pairs=data --data pairs.jsonl

A score that is not finite is an error
of its episode.
"""

from typing import Literal

import palaestra as pl

CARD = pl.Card(
    title="Reward-robust RLHF: Bayesian reward model ensemble",
    paper="arXiv:2409.15360",
    claim="A mixture of the nominal and the worst-case reward of an ensemble trains longer without "
    "damage than one reward model.",
    source="second-hand for eq. 4, 7 and the choice of the head; the second stage's loss and the "
    "kind of minimum inferred",
    size=pl.Size(
        setting="LLaMA3-8B-Instruct, five heads, HH-RLHF and UltraFeedback, 800 PPO steps of 128",
        model="llama-3.1-8b",
        answers=128,
    ),
    needs=pl.needs.Requirements(
        columns=pl.needs.PAIRS,
        shows="part/reward/prior0_sd",
        never_off="It is the standard deviation that a head learns for its own reward, above 0 with any "
        "number of heads.",
        own={
            "pairs": "data",
            "nominal.schedule.prompts": 4,
            "ensemble.schedule.prompts": 4,
            "ensemble.collect.links.0.n": 2,
            "rl.schedule.prompts": 4,
            "rl.collect.links.0.n": 2,
        },
    ),
    use="It helps where a reward model is trained on few or noisy preferences and the policy is trained "
    "against it for long; with a reward that is right it only costs heads.",
    lacks=(
        "An existing reward model is not turned into an ensemble: the trunk is the policy's start.",
        "Rewards are not brought to one scale on a calibration set; the heads share their target.",
        "Without `pairs=data` no preferences of people are read: the reward of the data ranks the "
        "policy's own replies.",
    ),
    grade="B",
)


def build(
    heads: int = 5,
    w: float = 0.4,
    over: Literal["sample", "batch"] = "sample",
    kl: float = 0.02,
    pairs: Literal["data", "rollouts"] = "rollouts",
) -> pl.Recipe | pl.Pipeline:
    if pairs == "data":
        return staged(pl.rewards.Robust("reward", prior_heads(heads), w, over), heads, kl)
    return beside(heads, w, over, kl)


def staged(reward: pl.RewardFn, heads: int, kl: float) -> pl.Pipeline:
    """Both stages on recorded pairs, then PPO on the frozen `reward` of the model "reward"."""
    start = pl.recipe("ppo", kl=kl)
    nominal = pl.vary(
        start, collect=pl.links(pl.Recorded()), learners={"nominal": nominal_learner()}
    )
    scored = pl.links(pl.Sample(n=8), pl.Score(reward=pl.Learned("nominal")))
    ensemble = pl.vary(
        start, collect=scored, learners={"reward": ensemble_learner(prior_heads(heads), "total")}
    )
    rl = pl.vary(start, collect=pl.links(pl.Sample(n=8), pl.Score(reward=reward)))
    return pl.Pipeline(
        parts={
            "nominal": pl.Part(nominal),
            "ensemble": pl.Part(ensemble, models={"nominal": pl.Output("nominal", "nominal")}),
            "rl": pl.Part(rl, models={"reward": pl.Output("ensemble", "reward")}),
        }
    )


def beside(heads: int, w: float, over: Literal["sample", "batch"], kl: float) -> pl.Recipe:
    """Both stages beside the policy, on its own replies."""
    names, parent = prior_heads(heads), pl.recipe("ppo", kl=kl)
    collect = pl.links(
        pl.Sample(n=8),
        pl.Score(reward=pl.rewards.Robust("reward", names, w, over), shadow=True),
        pl.Beside(pl.Learned("nominal"), "nominal"),
    )
    return pl.vary(
        parent,
        collect=collect,
        learners={
            **parent.learners,
            "nominal": nominal_learner("gold"),
            "reward": ensemble_learner(names),
        },
    )


def prior_heads(heads: int) -> tuple[str, ...]:
    return tuple(f"prior{i}" for i in range(heads))


def nominal_learner(label: str = "") -> pl.Learner:
    """Stage 1: one head, Bradley-Terry on the best and the worst of a group."""
    credit = pl.Labelled(label, pl.Compare()) if label else pl.Compare()
    return pl.Learner(
        credit=credit,
        objective=pl.BradleyTerry(center=0.01),
        heads=("score",),
        optimiser=pl.AdamW(lr=3e-4),
    )


def ensemble_learner(names: tuple[str, ...], target: str = "nominal") -> pl.Learner:
    """Stage 2: Gaussian heads on the scores of stage 1."""
    credit, heads = (
        pl.Rate(targets=(target,), bootstrap=names),
        (*names, *(f"{h}_sd" for h in names)),
    )
    return pl.Learner(
        credit=credit,
        objective=pl.objective.Gaussian(names, target=target),
        heads=heads,
        optimiser=pl.AdamW(lr=3e-4),
    )
