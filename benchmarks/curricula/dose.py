"""The dose of a hint: how many answers are right by how much of the working is given, and where.

    palaestra reproduce benchmarks/curricula/dose.py --out benchmarks/curricula

Nothing is trained: every arm samples at a rate of 0 from the half-taught start.
"""

from typing import Any

import palaestra as pl
from palaestra.claims.curricula import LONGEST, behind
from palaestra.claims.starts import unmoved, warm_chain

SHARES = (0.25, 0.5, 0.75)


def sampled(collect: pl.Collect = pl.Sample(n=8)) -> pl.Pipeline:
    learned = pl.vary(
        pl.recipe("grpo"),
        collect=pl.links(collect, pl.Score()),
        schedule=pl.Schedule(prompts=16),
    )
    return behind(warm_chain(), unmoved(learned, steps=40))


def begun(share: float, unit: Any = "steps", shuffled: bool = False) -> pl.Pipeline:
    """The reply begins with a share of the working, of another task's where it is shuffled."""
    said = pl.Working(share, unit, shuffled)
    return sampled(pl.rollout.Begin(said, pl.Sample(n=8), "guided", share))


def hinted(share: float) -> pl.Pipeline:
    """The same in the prompt."""
    said = pl.Hinted(pl.Working(share, "steps", False))
    return sampled(pl.Under(said, pl.Sample(n=8), "guided", share))


EXPERIMENT = pl.ledger.Experiment(
    claim="Of chains of 6 or 7 numbers modulo 9, more are right where more of the working begins the "
    "reply: at least 10 points more with a half of it than without.",
    quantity="no paper's: whether a hint has a dose in this model, and where",
    start=None,
    arms={
        "bare": sampled(),
        "first line": begun(1.0, "lines"),
        **{f"begun {share}": begun(share) for share in SHARES},
        **{f"another task's {share}": begun(share, shuffled=True) for share in SHARES},
        **{f"in the prompt {share}": hinted(share) for share in SHARES},
    },
    expect=pl.ledger.Greater(
        "begun 0.5", "bare", by=0.1, why="the least room in which methods of guidance could differ"
    ),
    falsified_if="half of the working adds less than 10 points",
    reasons=(
        pl.ledger.Needs("first line", "more than a beginning that switches to working"),
        pl.ledger.Needs("another task's 0.5", "the working of this task"),
    ),
    measure=pl.ledger.Logged("reward", last=0),
    metric="share of right answers at temperature 1, nothing trained",
    task=f"chain(modulo=9,operands=(6,7),max_tokens={LONGEST})",
    tokens=12_000,
    evaluate=0,
    seconds=10.0,
    note="Nothing is trained, so there are no rates to choose. An answer that begins with a given part is "
    "counted as right where its end is. How far a hint helps is one thing, whether learning from it helps the "
    "bare question another: that is what the other studies of this page measure.",
)


def build() -> pl.Runnable:
    """The arm without a hint."""
    return EXPERIMENT.arms["bare"]
