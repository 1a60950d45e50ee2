"""The claim of hybridflow: HybridFlow (verl): hybrid controller, resharding."""

import palaestra as pl
from palaestra.recipes.systems.hybridflow import Resharding

EXPERIMENT = pl.ledger.Experiment(
    words=__file__,
    arms={
        "grouped": Resharding("grouped"),
        "model group": Resharding("model group"),
        "all ranks": Resharding("all ranks"),
    },
    start=None,
    illustration=True,
    expect=pl.ledger.Greater("grouped", "model group", by=0.5, why="3/4 - 1/4"),
    measure=pl.ledger.Less(pl.ledger.Final("received"), of=1.0),
    metric="share of the linear weights that a rank need not receive",
    tokens=1,
    evaluate=0,
    seconds=10,
    controls={
        "received, most of any rank": pl.ledger.Final("received"),
        "received, least of any rank": pl.ledger.Final("least_received"),
        "by the formula": pl.ledger.Final("formula"),
        "arrived at sockets": pl.ledger.Final("arrived"),
        "kept twice": pl.ledger.Final("kept_twice"),
        "largest difference of logits": pl.ledger.Final("logits"),
    },
)
