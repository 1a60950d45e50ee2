"""PF-PPO: PPO on samples from the region where the reward model can be trusted.

After the advantages are known a batch is drawn anew from its own samples, with replacement and

    p ~ |s|^k (form="pow", k = 2),   1 for the largest and smallest s (form="max_min"),   0.4 for the largest and 0.1
    else (form="max_random")

of the rewards s (arXiv:2409.06957, as in verl), since a reward model errs most in the middle. All
equal rewards: every sample alike. It is no importance sampling: the estimate moves to the extremes
on purpose. Under "pow" a negative reward is a large one.

Which form to take the paper says by R^2 of a straight line through the true scores against the
rewards of the filtered samples, on problems that are not trained on: `fit_r2`.
"""

from collections.abc import Sequence
from typing import Literal

import numpy as np

import palaestra as pl

CARD = pl.Card(
    title="Policy Filtration for PPO",
    paper="arXiv:2409.06957",
    claim="PPO on the samples whose reward model is reliable writes better programs than PPO on "
    "all of them.",
    source="verl (compute_pf_ppo_reweight_data) and excerpts of the paper; rank weights by prompt "
    "are not built",
    size=pl.Size(setting="a 7B code model of the class of DeepSeek-Coder, 5 answers a prompt"),
)


@pl.stage
class ByReward:
    """The weight of a sample by its reward."""

    form: Literal["pow", "max_min", "max_random"] = "pow"
    k: float = 2.0

    def __call__(self, reward_N: np.ndarray) -> np.ndarray:
        largest_N, smallest_N = reward_N == reward_N.max(), reward_N == reward_N.min()
        if self.form == "max_min":
            return (largest_N | smallest_N).astype(float)
        if self.form == "max_random":
            return np.where(largest_N, 0.4, 0.1)
        return np.abs(reward_N) ** self.k


def fit_r2(reward_N: Sequence[float], truth_N: Sequence[float]) -> float:
    """R^2 of the straight line of the truth against the rewards; 0 where either is constant."""
    x_N, y_N = np.asarray(reward_N, float), np.asarray(truth_N, float)
    if np.ptp(x_N) == 0 or np.ptp(y_N) == 0:
        return 0.0
    return float(np.corrcoef(x_N, y_N)[0, 1] ** 2)


def build(form: Literal["pow", "max_min", "max_random"] = "pow", k: float = 2.0) -> pl.Recipe:
    parent = pl.recipe("ppo")
    (learner,) = parent.learners.values()
    return pl.vary(parent, credit=pl.credit.Resampled(learner.credit, ByReward(form, k)))
