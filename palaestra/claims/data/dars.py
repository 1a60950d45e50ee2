"""The claim of dars: more answers to hard prompts, so that they weigh as much as others."""

from typing import Any

import numpy as np

import palaestra as pl
from palaestra.claims.starts import RATES
from palaestra.recipes.data.dars import build

N = 8


@pl.stage
class Mirrored:
    """As many more answers as `count` gives where right answers are wrong and wrong ones right: easy
    prompts get what hard ones would.
    """

    count: pl.rollout.TopUp

    def __call__(self, rewards_G: np.ndarray) -> int:
        return self.count(1 - rewards_G)


@pl.stage
class AlikeGroups:
    """x * `n` / the answers of the group, so that a group with more answers weighs no more."""

    n: int = N

    def __call__(self, x: pl.Values, table: pl.Table) -> pl.Values:
        x = table.lift(x, "episode")
        size_G = np.bincount(table.group_E)
        return pl.Values(level="episode", x_N=x.x_N * self.n / size_G[table.group_E])


def arm(recipe: pl.Recipe, **differences: Any) -> pl.Recipe:
    return pl.vary(recipe, schedule=pl.Schedule(prompts=8, steps=400), **differences)


def sampled(*links: pl.Collect) -> pl.Recipe:
    """The loss of dars on answers that are spread otherwise."""
    return arm(build(), collect=pl.links(*links))


ARMS = {
    "sixteen": sampled(pl.Sample(n=2 * N), pl.Score()),
    "dars": arm(build()),
    "hard": arm(build("hard")),
    "easy": sampled(
        pl.Sample(n=N),
        pl.Score(),
        pl.rollout.Extra(Mirrored(pl.rollout.TopUp("equal", most=32))),
        pl.Score(),
    ),
    "alike weight": arm(build(), credit=pl.chain(pl.Center("group"), AlikeGroups())),
}

EXPERIMENT = pl.ledger.Experiment(
    words=__file__,
    arms=ARMS,
    expect=pl.ledger.Greater(
        "dars",
        "sixteen",
        by=0.03,
        why="a little above the 2.5 and 2.1 points of the paper",
    ),
    reasons=(
        pl.ledger.Needs("easy", "that the hard prompts get the answers"),
        pl.ledger.Needs("alike weight", "that hard prompts weigh more"),
    ),
    vetoes={"pass@1": pl.ledger.Veto(pl.ledger.Final("sampled_after.pass@1.mean"), falls=0.03)},
    measure=pl.ledger.Final("sampled_after.pass@8.mean"),
    metric="held-out pass@8 (temperature 1)",
    tuned={"optimiser.lr": RATES},
    task="bool(d=5)+bool(d=6)",
    tokens=16_000,
    evaluate=96,
    samples=8,
    seconds=12.0,
    controls={
        "groups with both kinds": pl.ledger.Logged("groups_mixed", last=0),
        "answers sampled in a step": pl.ledger.Logged("episodes", last=0),
        "entropy": pl.ledger.Logged("entropy_sampled"),
    },
)
