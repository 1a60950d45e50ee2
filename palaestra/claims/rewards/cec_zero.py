"""The claim of cec-zero: CEC-Zero: Chinese spelling correction by self-generated errors."""

import palaestra as pl
from palaestra.recipes.rewards.cec_zero import build

EXPERIMENT = pl.Experiment(
    claim="Consensus alone, without a label, raises the share of right samples above the start's.",
    arms={
        "start": pl.vary(build(), optimiser=pl.AdamW(lr=0.0)),
        "consensus": build(supervised=0.0, agreed=1.0),
        "similarity": build(supervised=1.0, agreed=0.0),
        "both": build(),
        "both with exact bonus": build(exact=0.5),
    },
    expect=pl.Greater("consensus", "start"),
    falsified_if="samples trained on consensus are no more often right than the start's",
    measure=pl.Logged("part/gold"),
    metric="share of right samples, last ten steps",
    task="bool",
    tokens=25_000,
    seconds=35.0,
    controls={
        "accuracy": pl.Final(),
        "consensus": pl.Logged("part/consensus"),
        "similarity": pl.Logged("part/similarity"),
    },
    note="The small model knows no Chinese: what is restored is the value of three nested "
    "brackets, and its start is right more often than any other way, which is what consensus "
    "needs. Errors of spelling are made and paid in the tests alone.",
)
