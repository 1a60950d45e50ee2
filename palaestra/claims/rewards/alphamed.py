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
    claim="On Boolean formulas of two, four and six operators, questions of all levels give a held-out "
    "accuracy over the levels at least 2 points above that of the hardest level alone, at equal "
    "sampled tokens.",
    quantity="mixed levels best on most of six benchmarks, hard ones alone worse; told as curves",
    arms={"hard": of(6), "mixed": of(), "middle": of(4), "easy": of(2)},
    expect=pl.ledger.Greater("mixed", "hard", by=0.02, why=TWO_POINTS),
    falsified_if="hard questions alone teach as much as the mixture, to 2 points",
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
    note="Nested brackets stand for clinical cases, their number for the level; the paper's level is "
    "the errors of the start model. Hard questions cost more tokens, so that an arm of hard ones takes "
    "fewer steps. By older rules, with 60,000 tokens, hard ones alone ended at .89 (greedy) and the "
    "mixture at .85; nothing else was looked at before the declaration. What is learned is mostly to work "
    "instead of guessing, which each level may teach. Cannot show: long informative cases against short "
    "recall; levels that differ in what must be known and not in length.",
)
