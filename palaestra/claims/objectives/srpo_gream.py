"""The claim of srpo-gream: GREAM: sparse-regularised group policy optimisation, generative
reasoning recommendation.
"""

from typing import Any

import palaestra as pl
from palaestra.claims.short import short
from palaestra.recipes.objectives.srpo_gream import build


def arm(**options: Any) -> pl.Recipe:
    """Eight groups with signal a step, with 10 answers each."""
    return short(build(size=8, **options))


EXPERIMENT = pl.ledger.Experiment(
    words=__file__,
    arms={
        "exact": arm(partial=False, bonus=0.0),
        "partial": arm(bonus=0.0),
        "bonus": arm(partial=False),
        "both": arm(),
    },
    expect=pl.ledger.Greater(
        "both", "exact", by=0.03, why="what ten seeds of such cells can tell apart from nothing"
    ),
    reasons=(
        pl.ledger.Needs("partial", "the bonus for answers among which one is right"),
        pl.ledger.Needs("bonus", "credit for the first codes of an item"),
    ),
    vetoes={"pass@1": pl.ledger.Veto(pl.ledger.Final("sampled_after.pass@1.mean"), falls=0.03)},
    measure=pl.ledger.Final("sampled_after.pass@4.mean"),
    metric="held-out pass@4 (temperature 1)",
    tuned={"optimiser.lr": (1e-4, 3e-4, 6e-4)},
    task="rec(history=3,noise=0.0)",
    tokens=24_000,
    evaluate=96,
    samples=8,
    seconds=20.0,
    controls={"groups with signal": pl.ledger.Logged("groups_mixed", last=0)},
)
