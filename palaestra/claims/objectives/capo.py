"""The claim of capo: CAPO: verifiable generative credit assignment."""

import palaestra as pl
from palaestra.recipes.objectives.capo import build

EXPERIMENT = pl.Experiment(
    claim="with an oracle for steps, CAPO earns more reward over the run than GRPO at equal "
    "sampled tokens",
    arms={
        "grpo": pl.recipe("grpo"),
        "capo": build(),
        "penalty-above-reward": build(right=1.0, wrong=2.0),
        "noisy-union": build(noise=0.3, vote="union"),
        "noisy-intersection": build(noise=0.3, vote="intersection"),
    },
    expect=pl.Greater("capo", than="grpo"),
    measure=pl.Logged("reward", last=0),
    metric="mean training reward over the whole run",
    falsified_if="the outcome alone teaches as much",
    controls={"final accuracy": pl.Final()},
    tokens=40_000,
    note="The oracle names the first wrong step only.",
)
