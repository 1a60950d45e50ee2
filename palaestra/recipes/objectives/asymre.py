"""AsymRE: REINFORCE on samples of older weights, with a baseline below their mean reward.

J(pi) = E_{y ~ mu}[(r(y) - V) log pi(y)] for data of any mu, no ratio (arXiv:2506.20520); V =
mean_group(r) + shift with a small negative shift, -0.1. On-policy V only changes the variance;
off-policy it changes the solution. For a softmax table let a_y = mu(y) (r(y) - V), b = sum_y a_y =
V^mu - V; the logits follow dl_y/dt = a_y - b pi(y). With V < V^mu the limit is pi*(y) = max(a_y -
tau, 0) / b, tau such that it sums to 1, never worse than mu; with V >= V^mu the flow collapses to
one arm, which may be a bad one. V -> -inf is imitation of all samples.

A group of equal rewards, and a group of one, has A = -shift for every sample: imitation, not zero,
so no gate may drop it. With `variant="released"` a group of one has A = r, as in the Trinity-RFT
code. Samples are `lag` steps old, 8 by default. No std; the mean over tokens instead of the sum
over an answer changes the scale only.
"""

from dataclasses import replace
from typing import Literal

import numpy as np

import palaestra as pl

CARD = pl.Card(
    title="Asymmetric off-policy REINFORCE (A = r - V, tunable baseline)",
    paper="arXiv:2506.20520",
    claim="Off-policy, a baseline slightly below the group's mean keeps training stable where one "
    "above it collapses.",
    source="paper; settings from modelscope/Trinity-RFT",
    size=pl.Size(
        setting="Llama 3.1 8B and Qwen2.5 3B on mathematics (recalled, not verified); Trinity: "
        "GSM8K, 96 prompts x 8, 1,024 tokens, synchronised every 20 steps",
        model="llama-3.1-8b",
        prompts=96,
        samples=8,
        tokens=1024,
    ),
    needs=pl.needs.Requirements(
        shows="age_mean",
        off={"lag": 0},
        own={"lag": 1, "schedule.prompts": 4, "collect.links.0.n": 4},
    ),
    use="It helps where samples are older than the weights that learn from them; on fresh samples the "
    "baseline changes the variance and little else.",
    lacks=(
        "The sampler is synchronised in every step, `lag` steps behind, and not every so many "
        "steps.",
        "Recorded answers of another policy cannot be brought.",
        "The baseline is always the group's mean plus `shift`; a constant one is not there.",
    ),
    grade="A",
)


@pl.stage
class LoneReward:
    """The reward itself for a group of one; others as they came."""

    def __call__(self, x: pl.Values, table: pl.Table) -> pl.Values:
        alone_E = np.bincount(table.group_E)[table.group_E] == 1
        return replace(x, x_N=np.where(alone_E, table.reward_E, x.x_N))


def build(
    shift: float = -0.1, variant: Literal["paper", "released"] = "paper", lag: int = 8
) -> pl.Recipe:
    """`lag` is the age of the samples, in steps; 0 = they are fresh."""
    lone = (LoneReward(),) if variant == "released" else ()
    return pl.vary(
        pl.recipe("grpo"),
        credit=pl.chain(pl.Center("group"), pl.credit.Shift(-shift), *lone),
        objective=pl.Reinforce(reduce="tokens"),
        schedule=pl.Schedule(prompts=16, steps=50, lag=lag),
    )
