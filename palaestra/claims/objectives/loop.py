"""The claim of loop: LOOP: leave-one-out PPO for interactive agents (AppWorld)."""

import palaestra as pl
from palaestra.recipes.objectives.loop import build

EXPERIMENT = pl.Experiment(
    claim="On T-hop, LOOP with token ratios earns more reward over the run than on-policy RLOO at "
    "equal sampled tokens.",
    arms={
        "rloo": build(epochs=1, minibatches=1),
        "std": build(baseline="std"),
        "token": build(),
        "turn": build("turn"),
        "trajectory": build("sequence"),
    },
    expect=pl.Greater("token", "rloo"),
    measure=pl.Logged("reward", last=0),
    metric="mean training reward over the whole run",
    falsified_if="reusing rollouts with clipped token ratios gains nothing over one on-policy "
    "update",
    task="hop",
    tokens=60_000,
    controls={
        "final accuracy": pl.Final(),
        "clipped": pl.Logged("clipped", last=0),
        "tokens an episode": pl.Logged("length"),
    },
    note="The paper's order is token, turn, trajectory, and LOOP above GRPO (std): the further "
    "arms show it. Rewards are 0 or 1.",
)
