"""The claim of rloo: REINFORCE Leave-One-Out."""

from palaestra.catalogue import recipe
from palaestra.credit.links import chain
from palaestra.ledger.experiment import Experiment, Greater
from palaestra.recipes.base.rloo import build
from palaestra.values import vary

EXPERIMENT = Experiment(
    claim="At equal sampled tokens, REINFORCE learns more with a leave-one-out baseline per prompt than without a baseline.",
    arms={
        "no baseline": vary(recipe("reinforce"), credit=chain()),
        "rloo": build(),
        "batch mean": recipe("reinforce"),
    },
    expect=Greater(better="rloo", than="no baseline"),
    falsified_if="The held-out accuracy of rloo is not at least 2 points higher at the end.",
    task="count",
    tokens=60_000,
    seconds=40.0,
    note="The paper compares with PPO on preference rewards; here the reward is a verifier's 0 or 1.",
)
