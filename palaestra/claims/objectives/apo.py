"""The claim of apo: Asymmetric Policy Optimization (View-R1): DADS + STCR."""

from dataclasses import replace

import numpy as np

import palaestra as pl
from palaestra.claims.short import ACCURACY, FRESH, short
from palaestra.claims.starts import unmoved
from palaestra.recipes.objectives.apo import Stcr, build

LAST = 15  # steps of which answers are measured
BASE = 1.1


@pl.stage
class MixedStcr:
    """The factors of `Stcr`, dealt out anew among the wrong answers of groups that have a right one: as
    large in all, and not on the longer answers.
    """

    base: float = BASE

    def __call__(self, x: pl.Values, table: pl.Table) -> pl.Values:
        ones = pl.Values(level="episode", x_N=np.ones(len(table.episodes)))
        factor_E = Stcr(self.base)(ones, table).x_N.copy()
        right_E = table.reward_E >= 1
        known_E = pl.group_mean(right_E.astype(float), table.group_E) > 0
        mine = np.flatnonzero(~right_E & known_E)
        rng = pl.rng_of(("mixed factors", *table.lengths_E.tolist()))
        factor_E[mine] = factor_E[rng.permutation(mine)]
        return replace(x, x_N=x.x_N * factor_E)


def mixed() -> pl.Recipe:
    """STCR with its factors on other wrong answers."""
    learned = build(dads=False, base=BASE)
    credit = learned.learners["policy"].credit
    assert isinstance(credit, pl.Chain)
    *kept, _ = credit.links
    return short(learned, credit=pl.Chain((*kept, MixedStcr())))


EXPERIMENT = pl.ledger.Experiment(
    words=__file__,
    start=unmoved(pl.vary(pl.recipe("grpo"), schedule=FRESH), steps=LAST),
    arms={
        "grpo": short(build(dads=False, stcr=False)),
        "stcr": short(build(dads=False, base=BASE)),
        "stcr mixed up": mixed(),
        "stcr at 1.01": short(build(dads=False, base=1.01)),
        "apo": short(build(base=BASE)),
    },
    expect=pl.ledger.Greater(
        "stcr", "grpo", by=2.0, why="a tenth of a wrong answer, of some 21 tokens"
    ),
    reasons=(pl.ledger.Needs("stcr mixed up", "that the longer wrong answers weigh more"),),
    vetoes={"sampled accuracy": pl.ledger.Veto(ACCURACY, falls=0.01)},
    measure=pl.ledger.Less(pl.ledger.Logged("length_wrong", last=LAST)),
    metric=f"tokens of a wrong training answer, last {LAST} steps, with a minus",
    tuned={"optimiser.lr": (1e-4,)},
    blocks=pl.ledger.TWENTY_SEEDS,
    task="sort(d=5)",
    tokens=32_000,
    evaluate=128,
    samples=4,
    seconds=16.0,
    controls={
        "length of right answers": pl.ledger.Logged("length_right", last=LAST),
        "training answers right": pl.ledger.Logged("reward", last=LAST),
        "entropy": pl.ledger.Logged("entropy_sampled", last=LAST),
        "KL": pl.ledger.Logged("kl_ref", last=LAST),
    },
)
