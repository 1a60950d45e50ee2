"""The claim of carft: CARFT: contrastive learning with annotated CoT."""

import palaestra as pl
from palaestra.claims.short import ACCURACY, THREE_POINTS
from palaestra.claims.starts import half_taught
from palaestra.recipes.objectives.carft import build

WEIGHT = {"rl.objective.parts.2.weight": (0.1, 1.0)}  # of the contrastive loss
RATE = {"rl.optimiser.lr": (1e-4,)}  # at 3e-4 `reft` and `carft` fall below their start


def arm(recipe: pl.Runnable) -> pl.Pipeline:
    return half_taught(pl.vary(recipe, schedule=pl.Schedule(prompts=32, steps=400)))


EXPERIMENT = pl.ledger.Experiment(
    words=__file__,
    start=half_taught(pl.ledger.Untrained()),
    arms={
        "reft": arm(build(contrast=0.0)),
        "carft": arm(build()),
        "shuffled": arm(build(shuffled=True)),
    },
    expect=pl.ledger.Greater("carft", "reft", by=0.03, why=THREE_POINTS),
    reasons=(pl.ledger.Needs("shuffled", "the annotation of the same problem"),),
    measure=ACCURACY,
    metric="held-out accuracy (temperature 1)",
    constants={"reft": RATE, "carft": RATE | WEIGHT, "shuffled": RATE | WEIGHT},
    task="chain(modulo=9,operands=(6,7),max_tokens=96)",
    tokens=72_000,
    tuning_tokens=24_000,
    evaluate=192,
    samples=4,
    seconds=50.0,
    controls={
        "similarity": pl.ledger.Logged("similarity"),
        "contrast": pl.ledger.Logged("contrast"),
        "entropy": pl.ledger.Logged("entropy_sampled"),
        "length": pl.ledger.Logged("length"),
    },
)
