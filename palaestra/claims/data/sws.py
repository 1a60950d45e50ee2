"""The claim of sws: problems written for what a first RL run failed to learn."""

from typing import Literal

import palaestra as pl
from palaestra.claims.starts import RATES
from palaestra.recipes.data.sws import in_phases


def continued(weigh: Literal["weak", "even", "none"]) -> pl.Recipe:
    """8 prompts a step: three epochs of 48 seeds, then these and 48 written ones."""
    learned = in_phases(seeds=48, epochs=3, written=48, weigh=weigh)
    return pl.vary(learned, schedule=pl.Schedule(prompts=8, steps=200))


EXPERIMENT = pl.ledger.Experiment(
    words=__file__,
    arms={
        "seeds alone": continued("none"),
        "even": continued("even"),
        "weak": continued("weak"),
    },
    expect=pl.ledger.Greater(
        "weak", "even", by=0.03, why="about a third of the paper's gain over training without"
    ),
    reasons=(pl.ledger.Needs("seeds alone", "problems that are written at all"),),
    measure=pl.ledger.Final("sampled_after.pass@1.mean"),
    metric="held-out accuracy over all six domains (temperature 1)",
    tuned={"optimiser.lr": RATES[:2]},
    task="add(d=2)+bool(d=2)+sort(d=2)+chain(modulo=9)+knights(d=2)+knights(d=4)",
    tokens=60_000,
    tuning_tokens=30_000,
    evaluate=192,
    samples=4,
    seconds=90.0,
    controls={"groups with a gradient": pl.ledger.Logged("groups_mixed")},
)
