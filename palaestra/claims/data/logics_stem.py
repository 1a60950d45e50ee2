"""The claim of logics-stem: problems out of documents that are looked up for failures."""

from typing import Literal

import numpy as np

import palaestra as pl
from palaestra.claims.starts import RATES, imitation
from palaestra.recipes.data.logics_stem import FailureDriven, second_stage

HARD = "chain(modulo=9,operands=(6,7),max_tokens=96)"
TARGET = f"add(d=3)+{HARD}+bool(d=4)"
SKEWED = f"add(d=3)*18+{HARD}+bool(d=4)"
OWN = 1 << 18  # queries and documents are tasks of the seed, and nobody draws as many


@pl.stage
class DrawSkewed:
    """Draws from the parts of a mixture with fixed shares."""

    shares: tuple[float, ...] = (0.9, 0.05, 0.05)

    def __call__(
        self, ctx: pl.Context, key: pl.Key, n: int, state: pl.State
    ) -> tuple[list[pl.Task], pl.State]:
        return pl.curriculum.draw_from_arms(ctx, key, n, np.array(self.shares), state)


def staged(second: pl.Runnable) -> pl.Pipeline:
    """25 steps of imitation of the skewed data; then the arm."""
    first = pl.warm(imitation(25), SKEWED)
    return pl.Pipeline(parts={"sft": first, "rl": pl.Part(second, model=pl.Output("sft"))})


def written(of: Literal["failures", "anything"]) -> pl.Pipeline:
    """48 queries, 4 attempts each; 8 prompts a step."""
    return staged(small(FailureDriven(queries=48, written=128, of=of, first=OWN)))


def small(draw: pl.Draw | FailureDriven) -> pl.Recipe:
    return pl.vary(second_stage(draw), schedule=pl.Schedule(prompts=8, steps=100))


ARMS = {
    "more data": staged(small(DrawSkewed())),
    "random": written("anything"),
    "failures": written("failures"),
}

EXPERIMENT = pl.ledger.Experiment(
    claim="After imitation of data of which 90% are sums, RL on problems written from documents that "
    "were looked up for the model's failures gives an accuracy on three domains alike at least 3 points "
    "above that of RL on problems written from any documents.",
    quantity="4.68 points on average over the next best model of 8B",
    start=staged(pl.ledger.Untrained()),
    arms=ARMS,
    expect=pl.ledger.Greater(
        "failures", "random", by=0.03, why="two thirds of the paper's average gain"
    ),
    falsified_if="problems written from any documents do as well, to 3 points",
    reasons=(
        pl.ledger.Needs("more data", "problems that are written, and the failures themselves"),
    ),
    measure=pl.ledger.Final("sampled_after.pass@1.mean"),
    metric="held-out accuracy over the three domains (temperature 1)",
    constants={arm: {"rl.optimiser.lr": RATES[:2]} for arm in ARMS},
    task=TARGET,
    tokens=40_000,
    tuning_tokens=15_000,
    evaluate=192,
    samples=4,
    seconds=60.0,
    controls={"groups with a gradient": pl.ledger.Logged("groups_mixed")},
    note="A rate of 3e-4 is not tried, at which seeds of such tasks fall in other claims. "
    "Looking up is by letters, and a document is a worked problem of one domain, so what is found mostly "
    "names the domain of the failure; who writes is its source. So this tests whether training on the "
    "domains of failures pays, and nothing of the data engine at its scale, which is not built. Both arms "
    "that write attempt the queries, and pay for it, and both train on the failed queries themselves, so "
    "that they differ in the lookup alone. Puzzles of knights are no domain here, as no arm of other "
    "claims gains on them. What was looked at: a trial with puzzles in place of formulas that ran on seed "
    "0, which is one of the ten that decide, so that one is not fresh to who declared this.",
)
