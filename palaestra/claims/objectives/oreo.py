"""The claim of oreo: OREO: offline RL for multi-step reasoning (soft Bellman)."""

import palaestra as pl
from palaestra.recipes.objectives.oreo import build, make_offline

EXPERIMENT = pl.Experiment(
    claim="on answers of the start policy alone, OREO ends with a higher held-out accuracy than "
    "DPO on pairs of them",
    arms={
        "dpo": make_offline(pl.recipe("dpo")),
        "oreo": build(),
        "oreo-response": build(level="response"),
        "oreo-on-policy": build(frozen=False),
    },
    expect=pl.Greater("oreo", than="dpo"),
    falsified_if="pairs teach as much as path consistency does from the same data",
    task="add",
    tokens=60_000,
)
