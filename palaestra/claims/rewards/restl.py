"""The claim of restl: RESTL: multi-aspect rewards for NL to signal temporal logic."""

import palaestra as pl
from palaestra.recipes.rewards.restl import WEIGHTS, build

EXPERIMENT = pl.ledger.Experiment(
    claim="PPO on four aspects of the surface samples right answers more often than PPO on exact "
    "match, at equal tokens.",
    arms={
        "exact match": build(weights=(("exact", 1.0),)),
        "aspects": build(),
        "aspects without tokens": build(weights=WEIGHTS[:3]),
        "aspects and meaning": build(semantic=1.0),
    },
    expect=pl.ledger.Greater("aspects", "exact match"),
    falsified_if="exact match is sampled as often when it is the reward",
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
    note="The small model writes no logic: digit i of a sum becomes the formula that x has that "
    "value at time i, and the metrics are those of the paper. The aspects are measured, the "
    "paper's ablation; `pipeline()` learns them.",
)
