"""Reward-robust RLHF: a reward between what the reward model most likely means and the worst that
it may mean.

Five heads on one trunk say a mean mu_h and a standard deviation sd_h each (a Bayesian reward model
ensemble):

    r = w * mu_{h*} + (1 - w) * min_h mu_h,   h* = argmin_h sd_h        (arXiv:2409.15360, eq. 4 and 7)

with PPO and a KL penalty. w = 1 is plain RLHF on the most certain head, w = 0 the worst case; one
head is plain RLHF at any w. The minimum is taken sample by sample, or (`over="batch"`) by the head
whose mean over the step's samples is least. Trained in two stages: a reward model with one head by
Bradley-Terry, then the heads on its scores, each on a resample of its own (the likelihood instead
of the paper's squared error of a sample, whose minimum is sd = 0). All heads have the same target,
so none wins the minimum by its offset. `build` runs both stages beside the policy, on labels of the
bench; `staged` one after the other, frozen, as in the paper. A score that is not finite is an error
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
)


def build(
    heads: int = 5, w: float = 0.4, over: Literal["sample", "batch"] = "sample", kl: float = 0.02
) -> pl.Recipe:
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
