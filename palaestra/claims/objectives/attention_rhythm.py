"""The claim of attention-rhythm: Attention illuminates reasoning: preplan-and-anchor credit
assignment.
"""

import palaestra as pl
from palaestra.recipes.objectives.attention_rhythm import build

EXPERIMENT = pl.Experiment(
    claim="Coupled credit earns more reward over the run than the same amplification of random "
    "tokens.",
    arms={
        "grpo": pl.recipe("grpo"),
        "random": build("random"),
        "entropy": build("entropy"),
        "local": build("local"),
        "global": build("global"),
        "coupled": build("coupled"),
        "bottom": build("bottom"),
    },
    expect=pl.Greater("coupled", "random"),
    measure=pl.Logged("reward", last=0),
    metric="mean training reward over the whole run",
    falsified_if="the reward with coupled credit is less than 2 points above that with random "
    "tokens",
    task="add",
    tokens=40_000,
    controls={"final accuracy": pl.Final(), "entropy": pl.Logged("entropy_sampled")},
    note="a window of 2 to 10 tokens for anchors in answers of 25 tokens, where the paper has 10 "
    "to 50.",
)
