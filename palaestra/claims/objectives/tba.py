"""The claim of tba: Trajectory Balance with Asynchrony."""

import palaestra as pl
from palaestra.recipes.objectives.tba import build

EXPERIMENT = pl.Experiment(
    claim="TBA is as accurate with rollouts 8 steps old as with fresh ones",
    arms={
        "tba-fresh": build(lag=0),
        "tba-old": build(lag=8),
        "tba-half-by-reward": build(lag=8, recent=0.5),
        "grpo-fresh": pl.recipe("grpo"),
        "grpo-old": pl.vary(pl.recipe("grpo"), schedule=pl.Schedule(prompts=16, steps=50, lag=8)),
    },
    expect=pl.Same("tba-old", "tba-fresh", within=0.03),
    falsified_if="old rollouts cost or gain more than three points",
    task="add(d=4)",
    tokens=80_000,
    note="The paper's claim is wall-clock time: four times faster. One process cannot show it, "
    "only that age does no harm.",
)
