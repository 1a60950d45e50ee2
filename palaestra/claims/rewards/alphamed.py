"""The claim of alphamed: AlphaMed: minimalist rule-based RL on medical multiple choice."""

import palaestra as pl
from palaestra.recipes.rewards.alphamed import build

EXPERIMENT = pl.Experiment(
    claim="At equal sampled tokens, questions of mixed difficulty give a higher held-out accuracy "
    "than hard ones alone.",
    arms={"easy": build((2,), "d"), "mixed": build(), "hard": build((6,), "d")},
    expect=pl.Greater("mixed", "hard"),
    falsified_if="hard questions alone teach as much as the mixture",
    metric="held-out accuracy on all levels (greedy)",
    task="bool(d=2)+bool(d=4)+bool(d=6)",
    tokens=60_000,
    seconds=40.0,
    controls={
        "length": pl.Logged("length"),
        "groups with both outcomes": pl.Logged("groups_mixed"),
    },
    note="Nested brackets stand for clinical cases, their number for the level; the paper's level "
    "is the start model's errors. Answers are strings of truth values instead of letters: the "
    "small model does not learn multiple choice in a cell.",
)
