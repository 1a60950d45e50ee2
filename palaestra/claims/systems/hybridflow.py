"""The claim of hybridflow: HybridFlow (verl): hybrid controller, resharding."""

import palaestra as pl
from palaestra.recipes.systems.hybridflow import Resharding

EXPERIMENT = pl.ledger.Experiment(
    claim="From four tensor-parallel ranks to two, a rank of a generation group at stride receives a "
    "quarter of the weights, half of the model less than where its replica gathers them.",
    quantity="a quarter of the model against three quarters and seven eighths: at 70B 35, 105 and "
    "122.5 GB; throughput 1.53 to 20.57 times that of other systems",
    arms={
        "grouped": Resharding("grouped"),
        "model group": Resharding("model group"),
        "all ranks": Resharding("all ranks"),
    },
    start=None,
    illustration=True,
    expect=pl.ledger.Greater("grouped", "model group", by=0.5, why="3/4 - 1/4"),
    falsified_if="a rank receives more or less than the formula says, or logits differ by 1e-5",
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
    note="Eight processes of one machine (t = 4, t_g = 2, d = 2), the embedded model in float64. "
    "Bytes follow from layouts, so seeds, which draw the tokens of the logits, do not change them: "
    "the program shows that DTensor moves what the formula says. It shows nothing about seconds or "
    "throughput, for which devices with links of their own are needed.",
)
