"""The claim of alphamed: AlphaMed: minimalist rule-based RL on medical multiple choice."""

from typing import Any

import palaestra as pl
from palaestra.claims.short import short
from palaestra.claims.starts import RATES, TWO_POINTS
from palaestra.recipes.rewards.alphamed import build


def of(*levels: int) -> pl.Recipe:
    """8 prompts a step, of these levels alone; none = of all."""
    chosen: Any = (levels, "d") if levels else ()
    return short(build(*chosen))


EXPERIMENT = pl.ledger.Experiment(
    words=__file__,
    arms={"hard": of(6), "mixed": of(), "middle": of(4), "easy": of(2)},
    expect=pl.ledger.Greater("mixed", "hard", by=0.02, why=TWO_POINTS),
    reasons=(
        pl.ledger.Needs("middle", "several levels, and not a middle one"),
        pl.ledger.Needs("easy", "questions that are not easy"),
    ),
    vetoes={"pass@4": pl.ledger.Veto(pl.ledger.Final("sampled_after.pass@4.mean"), falls=0.03)},
    measure=pl.ledger.Final("sampled_after.pass@1.mean"),
    metric="held-out accuracy on all levels (temperature 1)",
    tuned={"optimiser.lr": RATES},
    task="bool(d=2)+bool(d=4)+bool(d=6)",
    tokens=16_000,
    evaluate=96,
    samples=4,
    seconds=12.0,
    controls={
        "length": pl.ledger.Logged("length"),
        "groups with both outcomes": pl.ledger.Logged("groups_mixed", last=0),
    },
)
