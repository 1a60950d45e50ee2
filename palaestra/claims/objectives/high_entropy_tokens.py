"""The claim of high-entropy-tokens: Beyond the 80/20 rule: high-entropy minority tokens."""

import palaestra as pl
from palaestra.recipes.objectives.high_entropy_tokens import build

EXPERIMENT = pl.Experiment(
    claim="The 20% of tokens with the highest entropy earn the reward of all tokens over the run "
    "within 3 points.",
    arms={
        "all": build(1.0, variant="released"),
        "top 20%": build(0.2, variant="released"),
        "top 50%": build(0.5, variant="released"),
        "bottom 80%": build(0.8, "low-entropy", variant="released"),
        "random 20%": build(0.2, "random", variant="released"),
    },
    expect=pl.Same("top 20%", "all", within=0.03),
    measure=pl.Logged("reward", last=0),
    metric="mean training reward over the whole run",
    falsified_if="the rewards of the top 20% and of all tokens differ by more than 3 points",
    task="add",
    tokens=40_000,
    controls={"final accuracy": pl.Final(), "entropy": pl.Logged("entropy_sampled")},
    note="the mean over selected tokens, so that all arms step alike; that gains grow with the "
    "model cannot be seen here.",
)
