"""The claim of clip-delta: Designing RL rewards at training time: Clipping and Delta for PRMs."""

import palaestra as pl
from palaestra.recipes.rewards.clip_delta import build

EXPERIMENT = pl.Experiment(
    claim="PPO paid by plain step scores writes longer solutions than PPO paid by their clipped "
    "differences.",
    arms={
        "success": pl.recipe("ppo"),
        "plain": build("plain", alpha=0.2),
        "clip": build("clip", alpha=0.2),
        "delta": build("delta", alpha=0.2),
        "clip-delta": build(alpha=0.2),
    },
    expect=pl.Greater("plain", "clip-delta", by=5.0),
    falsified_if="plain step scores do not lengthen solutions",
    measure=pl.Logged("length"),
    metric="mean length of answers, last ten steps (tokens)",
    tokens=60_000,
    seconds=60.0,
    controls={
        "accuracy": pl.Final(),
        "share of right answers, last ten steps": pl.Logged("part/right"),
    },
    note="The reward model is arithmetic that can be farmed by true but idle lines; the paper's is "
    "learned. alpha is ten times the default, because a run has 60,000 tokens.",
)
