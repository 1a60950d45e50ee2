"""The claim of rloo: REINFORCE Leave-One-Out."""

import palaestra as pl
from palaestra.recipes.base.rloo import build

EXPERIMENT = pl.ledger.Experiment(
    claim="At equal sampled tokens, REINFORCE learns more with a leave-one-out baseline per prompt "
    "than without a baseline.",
    arms={
        "no baseline": pl.vary(pl.recipe("reinforce"), credit=pl.chain()),
        "rloo": build(),
        "batch mean": pl.recipe("reinforce"),
    },
    expect=pl.ledger.Greater(better="rloo", than="no baseline"),
    falsified_if="The held-out accuracy of rloo is not at least 2 points higher at the end.",
    task="count",
    tokens=60_000,
    seconds=40.0,
    note="The paper compares with PPO on preference rewards; here the reward is a verifier's 0 or "
    "1.",
)
