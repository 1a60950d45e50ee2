"""The claim of loop: LOOP: leave-one-out PPO for interactive agents (AppWorld)."""

from typing import Any

import palaestra as pl
from palaestra.claims.short import ACCURACY, THREE_POINTS
from palaestra.claims.starts import RATES
from palaestra.recipes.objectives.loop import build


def reused(ratio: Any = "token", **options: Any) -> pl.Recipe:
    """4 prompts with 8 answers, and four steps of the optimiser on them."""
    learned = build(ratio, epochs=2, minibatches=2, **options)
    return pl.vary(learned, schedule=pl.Schedule(prompts=4, steps=400))


def once() -> pl.Recipe:
    """As many steps of the optimiser on the same batches, each answer in one of them."""
    learned = build(epochs=1, minibatches=4)
    return pl.vary(learned, schedule=pl.Schedule(prompts=4, steps=400))


def fresh() -> pl.Recipe:
    """A step of the optimiser for every prompt: about as many for equal tokens."""
    learned = build(epochs=1, minibatches=1)
    return pl.vary(learned, schedule=pl.Schedule(prompts=1, steps=400))


EXPERIMENT = pl.ledger.Experiment(
    words=__file__,
    arms={
        "once": once(),
        "rloo": fresh(),
        "token": reused(),
        "turn": reused("turn"),
        "trajectory": reused("sequence"),
        "std": reused(baseline="std"),
    },
    expect=pl.ledger.Greater("token", "once", by=0.03, why=THREE_POINTS),
    reasons=(
        pl.ledger.Needs("trajectory", "a ratio of each token"),
        pl.ledger.Needs("std", "an advantage that is not divided by a deviation"),
    ),
    measure=ACCURACY,
    metric="held-out success (temperature 1)",
    tuned={"optimiser.lr": RATES},
    task="hop",
    tokens=5_000,
    evaluate=96,
    samples=4,
    seconds=10.0,
    controls={
        "clipped": pl.ledger.Logged("clipped", last=0),
        "groups with both kinds": pl.ledger.Logged("groups_mixed", last=0),
        "tokens an episode": pl.ledger.Logged("length"),
    },
)
