"""The claim of agro: AGRO: Any-Generation Reward Optimization."""

import palaestra as pl
from palaestra.recipes.objectives.agro import build

EXPERIMENT = pl.Experiment(
    claim="with rollouts that are 8 steps old, AGRO earns more reward over the run than GRPO",
    arms={
        "grpo": pl.vary(pl.recipe("grpo"), schedule=pl.Schedule(prompts=16, steps=50, lag=8)),
        "agro": build(lag=8),
        "agro-on-policy": build(),
        "grpo-on-policy": pl.recipe("grpo"),
    },
    expect=pl.Greater("agro", than="grpo"),
    measure=pl.Logged("reward", last=0),
    metric="mean training reward over the whole run",
    falsified_if="GRPO with its ratios is as accurate on samples of the same age",
    controls={"final accuracy": pl.Final()},
    tokens=60_000,
)
