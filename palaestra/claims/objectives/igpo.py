"""The claim of igpo: Information Gain-based Policy Optimization."""

import palaestra as pl
from palaestra.recipes.objectives.igpo import build

EXPERIMENT = pl.Experiment(
    claim="On T-hop, IGPO earns more reward over the run than GRPO with the outcome alone at equal "
    "sampled tokens.",
    arms={"grpo": pl.recipe("grpo"), "igpo": build(), "shuffled": build(shuffle=True)},
    expect=pl.Greater("igpo", "grpo"),
    measure=pl.Logged("reward", last=0),
    metric="mean training reward over the whole run",
    falsified_if="gains add nothing to the outcome, or shuffled gains do as well",
    task="hop",
    tokens=60_000,
    controls={
        "final accuracy": pl.Final(),
        "gain a token": pl.Logged("gain", last=0),
        "tokens an episode": pl.Logged("length"),
    },
    note="The outcome is an exact match, 0 or 1; the paper's is token F1, and malformed answers "
    "cost 2 in its code.",
)
