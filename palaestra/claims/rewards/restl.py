"""The claim of restl: RESTL: multi-aspect rewards for NL to signal temporal logic."""

import palaestra as pl
from palaestra.recipes.rewards.restl import WEIGHTS, improve

EXPERIMENT = pl.ledger.Experiment(
    words=__file__,
    arms={
        "exact match": improve(weights=(("exact", 1.0),)),
        "aspects": improve(),
        "aspects without tokens": improve(weights=WEIGHTS[:3]),
        "aspects and meaning": improve(semantic=1.0),
    },
    expect=pl.ledger.Greater("aspects", "exact match"),
    measure=pl.ledger.Logged("part/exact"),
    metric="share of right samples, last ten steps",
    task="add(d=6)",
    tokens=40_000,
    seconds=40.0,
    controls={
        "accuracy": pl.ledger.Final(),
        "tokens": pl.ledger.Logged("part/tokens"),
        "length": pl.ledger.Logged("length"),
    },
)
