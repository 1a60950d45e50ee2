"""The claim of swe-rl: SWE-RL: similarity reward on software evolution."""

import palaestra as pl
from palaestra.recipes.rewards.swe_rl import build

EXPERIMENT = pl.ledger.Experiment(
    claim="On additions of six digits, where few samples are right, held-out accuracy is higher "
    "with likeness to the worked solution than with a reward for right answers.",
    arms={
        "exact": pl.recipe("grpo"),
        "likeness": build(),
        "likeness without penalty": build(malformed=0.0),
    },
    expect=pl.ledger.Greater("likeness", "exact"),
    falsified_if="rewarding likeness teaches no faster than rewarding right answers",
    task="add(d=6)",
    tokens=40_000,
    seconds=40.0,
    controls={
        "replies of a wrong form": pl.ledger.Logged("part/malformed", last=0),
        "length": pl.ledger.Logged("length"),
    },
    note="A worked sum stands for a patch and an answer line for the form: no model here writes "
    "edits of code.",
)
