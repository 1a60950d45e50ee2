"""The claim of guru: what was frequent in pre-training gains from RL in other domains."""

import palaestra as pl
from palaestra.recipes.data.guru import build

EXPERIMENT = pl.ledger.Experiment(
    claim="Domains that were in pre-training gain at least 5 points more from RL in other domains than "
    "domains that were not.",
    quantity="Guru-7B and 32B are 7.9 and 6.7 points above the best open models on 17 tasks; maths, "
    "code and science gain from other domains, logic, simulation and tables from their own alone",
    arms={"with all domains": build(), "with two domains": build()},
    expect=pl.ledger.Greater(
        "with all domains", "with two domains", by=0.05, why="what exams of 256 problems can tell"
    ),
    falsified_if="domains that the start has never met gain as much from RL in others",
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
    note="The two arms are the same program from two starts, of which one does not exist yet.",
)
