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
    words=__file__,
    start=staged(pl.ledger.Untrained()),
    arms=ARMS,
    expect=pl.ledger.Greater(
        "failures", "random", by=0.03, why="two thirds of the paper's average gain"
    ),
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
)
