"""The claim of eframe: further attempts at what nobody solved, filtered and replayed."""

from dataclasses import replace
from typing import Any

import palaestra as pl
from palaestra.claims.starts import RATES, half_taught
from palaestra.recipes.data.eframe import Survivors, attempt, build

CAPACITY = 2 * 5 * 16  # of the replay


def arm(recipe: pl.Recipe, **differences: Any) -> pl.Pipeline:
    """8 prompts a step."""
    schedule = replace(recipe.schedule, prompts=8, steps=400)
    made = pl.vary(recipe, schedule=schedule, **differences)
    credit = made.learners["policy"].credit
    if isinstance(credit, pl.credit.Rehearse):
        made = pl.vary(made, credit=replace(credit, each=0, capacity=CAPACITY))
    return half_taught(made)


def sampled(n: int, replay: bool) -> pl.Pipeline:
    """`n` answers to every prompt and no further ones, with eframe's loss."""
    return arm(build(replay=replay), collect=pl.links(pl.Sample(n=n), pl.Score()))


KEPT_ALL = pl.chain(pl.Center(attempt), pl.Scale(attempt), Survivors(further=0.05))

ARMS = {
    "twenty": sampled(20, replay=False),
    "eframe": arm(build()),
    "no further": sampled(5, replay=True),
    "no replay": arm(build(replay=False)),
    "no filter": arm(build(), credit=pl.credit.Rehearse(KEPT_ALL, capacity=CAPACITY, every=5)),
}

EXPERIMENT = pl.ledger.Experiment(
    words=__file__,
    start=half_taught(pl.ledger.Untrained()),
    arms=ARMS,
    expect=pl.ledger.Greater(
        "eframe", "twenty", by=0.05, why="what would be called another reach, as no number is given"
    ),
    reasons=(
        pl.ledger.Needs("no further", "further attempts at what nobody solved"),
        pl.ledger.Needs("no filter", "that failures among further attempts do not train"),
        pl.ledger.Needs("no replay", "replay"),
    ),
    vetoes={"pass@1": pl.ledger.Veto(pl.ledger.Final("sampled_after.pass@1.mean"), falls=0.03)},
    measure=pl.ledger.Final("sampled_after.pass@8.mean"),
    metric="held-out pass@8 (temperature 1)",
    constants={a: {"rl.optimiser.lr": RATES} for a in ARMS},
    task="chain(modulo=9,operands=(8,9),max_tokens=112)",
    tokens=60_000,
    evaluate=96,
    samples=8,
    seconds=25.0,
    controls={
        "groups with both kinds": pl.ledger.Logged("groups_mixed", last=0),
        "answers sampled in a step": pl.ledger.Logged("episodes", last=0, skip=25),
        "entropy": pl.ledger.Logged("entropy_sampled"),
    },
)
