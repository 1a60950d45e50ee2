"""The claim of rloo: REINFORCE Leave-One-Out."""

import palaestra as pl
from palaestra.recipes.base.rloo import build

EXPERIMENT = pl.ledger.Experiment(
    words=__file__,
    arms={
        "no baseline": pl.vary(pl.recipe("reinforce"), credit=pl.chain()),
        "rloo": build(),
        "batch mean": pl.recipe("reinforce"),
    },
    expect=pl.ledger.Greater(better="rloo", than="no baseline"),
    task="count",
    tokens=60_000,
    seconds=40.0,
)
