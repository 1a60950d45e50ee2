"""The claim of kimi-k1.5: mirror descent on whole answers with a length reward."""

from dataclasses import replace
from itertools import product
from typing import Any, ClassVar

import numpy as np

import palaestra as pl
from palaestra.claims.facts import EIGHT, REAL, on_facts
from palaestra.claims.starts import RATES, unmoved
from palaestra.recipes.objectives.kimi_k1_5 import build


@pl.stage
class MixedLengthReward:
    """The length rewards of each group, given to its right answers, and to its wrong ones, in
    another order: the same sizes, and no reason to be brief.
    """

    weight: Any = 1.0
    spreads: ClassVar[bool] = True  # groups with one reward as well

    def __call__(self, x: pl.Values, table: pl.Table) -> pl.Values:
        x = table.lift(x, "episode")
        bonus_E = pl.credit.LengthReward(self.weight)(x, table).x_N - x.x_N
        right_E = table.reward_E >= 1
        for g, right in product(np.unique(table.group_E), (True, False)):
            mine = np.flatnonzero((table.group_E == g) & (right_E == right))
            rng = pl.rng_of(("mixed lengths", *table.lengths_E[mine].tolist()))
            bonus_E[mine] = bonus_E[rng.permutation(mine)]
        return pl.Values(level="episode", x_N=x.x_N + bonus_E)


def placebo(length_from: int = 20) -> pl.Recipe:
    """`build(length=0.5)` with the length rewards mixed up."""
    mixed = MixedLengthReward(pl.Jump(0.0, 0.5, length_from))
    return pl.vary(build(length=0.0), credit=pl.Chain((mixed, pl.Center("group")), unit="group"))


EXPERIMENT = pl.ledger.Experiment(
    words=__file__,
    start=unmoved(build(length=0.0)),
    arms={
        "mirror-descent": build(length=0.0),
        "length-late": build(length=0.5),
        "length-at-once": build(length=0.5, length_from=0),
        "length-mixed-up": placebo(),
    },
    expect=pl.ledger.Greater(
        "length-late",
        than="mirror-descent",
        by=1.0,
        why="a token, about a tenth of a right answer without the length reward",
    ),
    reasons=(pl.ledger.Needs("length-mixed-up", "that the reward goes to the brief answers"),),
    vetoes={
        "sampled accuracy": pl.ledger.Veto(pl.ledger.Final("sampled_after.pass@1.mean"), falls=0.03)
    },
    choose=pl.ledger.Final("sampled_after.pass@1.mean"),
    measure=pl.ledger.Less(pl.ledger.Logged("length_right")),
    metric="tokens of a right answer, last 10 steps, with a minus",
    tuned={"optimiser.lr": RATES},
    task="sort",
    tokens=80_000,
    samples=4,
    seconds=80,
)


def of_facts(recipe: pl.Recipe) -> pl.Recipe:
    return pl.vary(recipe, schedule=EIGHT)


SMALL = replace(
    EXPERIMENT,
    words=__file__ + "#small",
    start=unmoved(of_facts(build(length=0.0))),
    arms={
        "mirror-descent": of_facts(build(length=0.0)),
        "length-at-once": of_facts(build(length=0.5, length_from=0)),
        "length-mixed-up": of_facts(placebo(length_from=0)),
    },
    expect=pl.ledger.Greater(
        "length-at-once",
        than="mirror-descent",
        by=2.0,
        why="a fifth of an answer of some ten tokens",
    ),
    vetoes={
        "sampled accuracy": pl.ledger.Veto(pl.ledger.Final("sampled_after.pass@1.mean"), falls=0.05)
    },
    measure=pl.ledger.Less(pl.ledger.Logged("length_right", last=5)),
    metric="tokens of a right training answer, last 5 steps, with a minus",
    **on_facts(task=REAL, tuned={"optimiser.lr": (3e-5,)}),
)
