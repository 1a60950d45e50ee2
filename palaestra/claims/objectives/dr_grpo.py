"""The claim of dr-grpo: Dr. GRPO (understanding R1-Zero-like training)."""

import palaestra as pl
from palaestra.recipes.objectives.dr_grpo import build

EXPERIMENT = pl.Experiment(
    claim="At the end of training wrong answers are longer under GRPO than under Dr. GRPO.",
    arms={
        "grpo": pl.recipe("grpo"),
        "no std": pl.vary(pl.recipe("grpo"), credit=pl.chain(pl.Center("group"))),
        "constant length": pl.vary(
            pl.recipe("grpo"), objective=pl.Clipped(reduce="constant", length=64)
        ),
        "dr-grpo": build(),
    },
    expect=pl.Greater("grpo", "dr-grpo", by=1.0),
    falsified_if="wrong answers under GRPO are less than one token longer than under Dr. GRPO over "
    "five seeds",
    measure=pl.Logged("length_wrong"),
    metric="mean length of wrong answers, last ten steps (tokens)",
    task="sort",
    tokens=80_000,
    controls={"accuracy": pl.Final(), "length of right answers": pl.Logged("length_right")},
    note="On `sort` wrong answers are the longer ones, as in the paper; answers have at most 64 "
    "tokens here, 3,000 there. AdamW hides most of the smaller gradient scale of the constant.",
)
