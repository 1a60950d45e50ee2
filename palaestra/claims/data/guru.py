"""The claim of guru: what was frequent in pre-training gains from RL in other domains."""

import palaestra as pl
from palaestra.recipes.data.guru import build

EXPERIMENT = pl.ledger.Experiment(
    words=__file__,
    arms={"with all domains": build(candidates=0), "with two domains": build(candidates=0)},
    expect=pl.ledger.Greater(
        "with all domains", "with two domains", by=0.05, why="what exams of 256 problems can tell"
    ),
    measure=pl.ledger.Final("transfer.add(d=4).knights(d=3)"),
    metric="gain on knights by RL on sums alone (greedy accuracy)",
    task="add(d=4)+bool(d=4)+sort(d=4)+knights(d=3)",
    tokens=40_000,
    evaluate=64,
    seconds=300.0,
    not_testable="a second start, pre-trained on the same mixture without lists and knights: "
    "the built-in model has met all four domains, and its habit of working a problem out carries from "
    "each to all others. Until then the protocol is what there is: `palaestra train guru --task A+B+C` "
    "trains on each domain and on all, and prints the matrix of gains, with any model.",
)
