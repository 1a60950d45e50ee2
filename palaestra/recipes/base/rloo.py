"""RLOO: REINFORCE whose baseline is the mean of the other samples of the prompt.

A_i = r_i - mean_{j != i} r_j = G/(G-1) (r_i - mean r)   (arXiv:2402.14740v2, eq. 7); a group of one gets advantage 0.
"""

from palaestra.card import Card, Size
from palaestra.credit.links import Center, chain
from palaestra.ledger.experiment import Experiment, Greater
from palaestra.recipes.base import reinforce
from palaestra.step import Recipe
from palaestra.values import vary

CARD = Card(
    id="rloo",
    family="base",
    title="REINFORCE Leave-One-Out",
    paper="arXiv:2402.14740",
    parent="reinforce",
    claim="A leave-one-out baseline makes plain REINFORCE match or beat PPO without a critic.",
    changes={"credit": "the baseline is the mean reward of the other samples of the same prompt"},
    source="paper",
    paper_scale="Pythia 6.9B and Llama 7B, TL;DR and HH preference data, G = 2 and 4, KL in the reward 0.03 to 0.10",
    size=Size(model="pythia-6.9b", samples=4),
)


def build() -> Recipe:
    return vary(reinforce.build(), credit=chain(Center("group", others=True)))


EXPERIMENT = Experiment(
    claim="At equal sampled tokens, REINFORCE learns more with a leave-one-out baseline per prompt than without a baseline.",
    arms={
        "no baseline": vary(reinforce.build(), credit=chain()),
        "rloo": build(),
        "batch mean": reinforce.build(),
    },
    expect=Greater(better="rloo", than="no baseline"),
    falsified_if="The held-out accuracy of rloo is not at least 2 points higher at the end.",
    task="count",
    tokens=60_000,
    seconds=40.0,
    note="The paper compares with PPO on preference rewards; here the reward is a verifier's 0 or 1.",
)
