"""Reward-robust RLHF: a reward between what the reward model most likely means and the worst that it may mean.

Five heads on one trunk say a mean mu_h and a standard deviation sd_h each (a Bayesian reward model ensemble):

    r = w * mu_{h*} + (1 - w) * min_h mu_h,   h* = argmin_h sd_h        (arXiv:2409.15360, eq. 4 and 7)

with PPO and a KL penalty. w = 1 is plain RLHF on the most certain head, w = 0 the worst case; one head is plain RLHF at any w.
The minimum is taken sample by sample, or (`over="batch"`) by the head whose mean over the step's samples is least. Trained in
two stages: a reward model with one head by Bradley-Terry, then the heads on its scores, each on a resample of its own (the
likelihood instead of the paper's squared error of a sample, whose minimum is sd = 0). All heads have the same target, so none
wins the minimum by its offset. `build` runs both stages beside the policy, on labels of the bench; `staged` one after the
other, frozen, as in the paper. A score that is not finite is an error of its episode.
"""

from typing import Literal

from palaestra.card import Card, Size
from palaestra.context import RewardFn
from palaestra.credit.labelled import Labelled
from palaestra.credit.preferences import Compare, Rate
from palaestra.ledger.experiment import Experiment, Greater, Logged
from palaestra.objective.reward_model import BradleyTerry, Gaussian
from palaestra.pipeline import Output, Part, Pipeline
from palaestra.recipes.base import ppo
from palaestra.rewards.labels import Beside, Noisy
from palaestra.rewards.learned import Ensemble, Learned, Robust, average
from palaestra.rollout.collect import Sample, Score, links
from palaestra.step import Learner, Recipe, Schedule
from palaestra.update import AdamW
from palaestra.values import vary

CARD = Card(
    id="reward-robust",
    family="rewards",
    title="Reward-robust RLHF: Bayesian reward model ensemble",
    paper="arXiv:2409.15360",
    parent="ppo",
    claim="A mixture of the nominal and the worst-case reward of an ensemble trains longer without damage than one reward model.",
    changes={
        "collect": "the reward is that of an ensemble of Gaussian heads, between its most certain and its lowest head",
        "learners": "a reward model on labels, and the ensemble on its scores",
    },
    source="second-hand for eq. 4, 7 and the choice of the head; the second stage's loss and the kind of minimum inferred",
    paper_scale="LLaMA3-8B-Instruct, five heads, HH-RLHF and UltraFeedback, 800 PPO steps of 128",
    size=Size(model="llama-3.1-8b", answers=128),
)


def build(heads: int = 5, w: float = 0.4, over: Literal["sample", "batch"] = "sample", kl: float = 0.02) -> Recipe:
    names, parent = prior(heads), ppo.build(kl=kl)
    collect = links(
        Sample(n=8), Score(reward=Robust("reward", names, w, over), shadow=True), Beside(Learned("nominal"), "nominal")
    )
    return vary(
        parent, collect=collect, learners={**parent.learners, "nominal": nominal("gold"), "reward": ensemble(names)}
    )


def prior(heads: int) -> tuple[str, ...]:
    return tuple(f"prior{i}" for i in range(heads))


def nominal(label: str = "") -> Learner:
    """Stage 1: one head, Bradley-Terry on the best and the worst of a group."""
    credit = Labelled(label, Compare()) if label else Compare()
    return Learner(credit=credit, objective=BradleyTerry(center=0.01), heads=("score",), optimiser=AdamW(lr=3e-4))


def ensemble(names: tuple[str, ...], target: str = "nominal") -> Learner:
    """Stage 2: Gaussian heads on the scores of stage 1."""
    credit, heads = Rate(targets=(target,), bootstrap=names), (*names, *(f"{h}_sd" for h in names))
    return Learner(credit=credit, objective=Gaussian(names, target=target), heads=heads, optimiser=AdamW(lr=3e-4))


def staged(reward: RewardFn, noise: float = 0.25) -> Pipeline:
    """The two stages, then PPO on the frozen `reward` of "nominal" and "reward"."""
    few, sample = Schedule(prompts=8, steps=20), Sample(n=4)
    start = vary(ppo.build(kl=0.02), schedule=few)
    labelled = vary(start, collect=links(sample, Score(reward=Noisy(share=noise))), learners={"nominal": nominal()})
    scored = vary(
        start, collect=links(sample, Score(reward=Learned("nominal"))), learners={"reward": ensemble(prior(5), "total")}
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
        "one reward model": staged(Learned("nominal")),
        "mean of five": staged(Ensemble("reward", prior(5), average)),
        "most certain head": staged(Robust("reward", prior(5), 1.0)),
        "robust": staged(Robust("reward", prior(5), 0.4)),
        "worst case": staged(Robust("reward", prior(5), 0.0)),
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
