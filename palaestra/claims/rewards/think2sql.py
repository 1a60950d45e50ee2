"""The claim of think2sql: Think2SQL: execution-accuracy RL for text-to-SQL."""

import palaestra as pl
from palaestra.recipes.rewards.think2sql import build

EXPERIMENT = pl.ledger.Experiment(
    words=__file__,
    arms={
        "ex": build("ex", n=8),
        "qatch": build(n=8),
        "qatch as released": build(variant="released", n=8),
        "later weights": build(weights=(0.95, 0.05, 0.0), n=8),
    },
    expect=pl.ledger.Greater("qatch", "ex"),
    task="add(d=6)",
    tokens=30_000,
    seconds=40.0,
    controls={
        "table": pl.ledger.Logged("part/table"),
        "accuracy": pl.ledger.Final(),
        "mixed": pl.ledger.Logged("groups_mixed"),
    },
    measure=pl.ledger.Logged("part/execution"),
    metric="share of right samples, last ten steps",
)
