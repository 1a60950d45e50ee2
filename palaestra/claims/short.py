"""What claims about losses and credit share: short runs that end below the ceiling, measured at
their end.
"""

from typing import Any

import palaestra as pl
from palaestra.claims.starts import RATES

ACCURACY = pl.ledger.Final("sampled_after.pass@1.mean")
THREE_POINTS = "three points, the least that a reader of the paper's tables would act on"
FRESH = pl.Schedule(prompts=8, steps=400)  # for as many steps as the tokens pay for
STALE = pl.Schedule(prompts=8, lag=6, steps=400)  # every batch is six updates old
LOOKED = (
    "Of these tasks the start answers .05 greedily. GRPO with this budget was looked at before the "
    "declaration: .49 to .56 greedily at 1e-4 and .51 to .72 at 3e-4, and no more than the start at "
    "3e-5, so no arm is near its ceiling. What is learned is mostly to work instead of guessing, a "
    "habit that the start has."
)
# of sums and formulas of six terms
SHORT: dict[str, Any] = {
    "measure": ACCURACY,
    "metric": "held-out accuracy (temperature 1)",
    "tuned": {"optimiser.lr": RATES},
    "task": "add(d=6)+bool(d=6)",
    "tokens": 16_000,
    "evaluate": 96,
    "samples": 8,
    "seconds": 10.0,
}


def short(recipe: pl.Recipe, **differences: Any) -> pl.Recipe:
    """8 prompts a step, for as many steps as the tokens pay for."""
    given: dict[str, Any] = {"schedule": FRESH, **differences}
    return pl.vary(recipe, **given)


def instead(**differences: Any) -> dict[str, Any]:
    """`SHORT` with some of its settings changed."""
    return {**SHORT, **differences}
