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
    claim="On Boolean formulas of five or six operators, up to 24 more answers to prompts of which less than "
    "half of eight are right give a held-out pass@8 at least 3 points above that of sixteen "
    "answers to every prompt, at equal sampled tokens.",
    quantity="pass@128 of 79.6 to 82.1 with a 1.5B model and of 81.4 to 83.5 with 7B",
    arms=ARMS,
    expect=pl.ledger.Greater(
        "dars",
        "sixteen",
        by=0.03,
        why="a little above the 2.5 and 2.1 points of the paper",
    ),
    falsified_if="pass@8 is less than 3 points above that of sixteen answers to every prompt",
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
    note="Looked at before the declaration, on trial seed 2000 with 24,000 tokens at 1e-4: pass@8 .63 at "
    "the start, .91 with `dars` after 7 steps of 143 answers on average, and .89 with `sixteen` after "
    "7; pass@1 .16, .50 and .55. So neither side had won, and the budget is two thirds of that, to stay "
    "below the ceiling. On chains of 7 to 9 numbers after a short imitation `dars` ended below its start at "
    "the same rate, so that task was left. With the budget of here `easy` had .88 and .54, `alike "
    "weight` .83 and .36. `easy` gives as many more answers to prompts that are mostly solved, of which "
    "the start has few, so it begins as eight answers a prompt. A prompt is judged by its first answers, "
    "so one of middling difficulty that was unlucky gets more as well. What is learned is mostly to "
    "work instead of guessing. Cannot show: "
    "the paper's second half, breadth, as all arms take four minibatches of two prompts, where the "
    "paper's full batch has 3,072; pass@128, where it gains most; that the cost falls as hard prompts "
    "become few.",
)
