"""The claim of recode: ReCode: rule-based RL for code API updates."""

import palaestra as pl
from palaestra.recipes.rewards.recode import build

EXPERIMENT = pl.Experiment(
    claim="On T-rec, held-out accuracy after equal sampled tokens is higher with edit similarity "
    "than with exact match.",
    arms={
        "exact": build(exact=True),
        "similarity": build(),
        "no gate": build(gate=False),
        "grpo": pl.recipe("grpo"),
    },
    expect=pl.Greater("similarity", "exact"),
    falsified_if="partial credit for near misses does not speed learning up",
    task="rec",
    tokens=60_000,
    seconds=40.0,
    controls={
        "similarity": pl.Logged("part/similarity"),
        "form": pl.Logged("part/format"),
        "length": pl.Logged("length"),
    },
    note="Four-letter codes stand for calls; the paper's exact match is rarer at the start. Both "
    "arms are paid for their form.",
)
