"""The claim of swe-rl: SWE-RL: similarity reward on software evolution."""

import palaestra as pl
from palaestra.recipes.rewards.swe_rl import embedded

EXPERIMENT = pl.ledger.Experiment(
    words=__file__,
    arms={
        "exact": pl.recipe("grpo"),
        "likeness": embedded(),
        "likeness without penalty": embedded(malformed=0.0),
    },
    expect=pl.ledger.Greater("likeness", "exact"),
    task="add(d=6)",
    tokens=40_000,
    seconds=40.0,
    controls={
        "replies of a wrong form": pl.ledger.Logged("part/malformed", last=0),
        "length": pl.ledger.Logged("length"),
    },
)
