"""The claim of egsw: Entropy-Guided Sequence Weighting."""

import palaestra as pl
from palaestra.recipes.objectives.egsw import build

EXPERIMENT = pl.Experiment(
    claim="EGSW with alpha = 0.3 earns more reward over the run than GRPO at equal sampled tokens.",
    arms={
        "grpo": pl.recipe("grpo"),
        "advantage alone": build(alpha=0.0),
        "entropy alone": build(advantage=0.0),
        "token by token": build(level="token"),
        "egsw": build(),
    },
    expect=pl.Greater("egsw", "grpo"),
    measure=pl.Logged("reward", last=0),
    metric="mean training reward over the whole run",
    falsified_if="the reward of EGSW is less than two points above that of GRPO",
    tokens=40_000,
    controls={
        "final accuracy": pl.Final(),
        "entropy": pl.Logged("entropy_sampled"),
        "mixed groups": pl.Logged("groups_mixed"),
    },
    note="alpha and P are not published and not tuned here; a gain that `advantage alone` has too "
    "is not the entropy's.",
)
