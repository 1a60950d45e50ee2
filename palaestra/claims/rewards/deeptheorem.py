"""The claim of deeptheorem: DeepTheorem: RL on verified theorem variants."""

import palaestra as pl
from palaestra.recipes.rewards.deeptheorem import build

EXPERIMENT = pl.Experiment(
    claim="Trained on both variants of a theorem a policy tells true from false ones better than "
    "trained on the true ones.",
    arms={"originals": build(("right",)), "variants": build()},
    expect=pl.Greater("variants", "originals", by=0.05),
    falsified_if="training on variants stays at the half that a constant label earns",
    metric="held-out accuracy over true and contradictory variants (greedy)",
    task="variants",
    tokens=60_000,
    seconds=40.0,
    controls={
        "outcome in training": pl.Logged("reward"),
        "process in training": pl.Logged("part/process"),
    },
    note="Theorems are values of chains, proofs their steps. The control `process` is checked line "
    "by line, the paper's by a rubric model.",
)
