"""The claim of carft: CARFT: contrastive learning with annotated CoT."""

import palaestra as pl
from palaestra.recipes.objectives.carft import build

EXPERIMENT = pl.Experiment(
    claim="CARFT earns more reward over the run than ReFT, the same PPO without the contrastive "
    "loss.",
    arms={"reft": build(contrast=0.0), "carft": build(), "shuffled": build(shuffled=True)},
    expect=pl.Greater("carft", "reft"),
    measure=pl.Logged("reward", last=0),
    metric="mean training reward over the whole run",
    falsified_if="the reward of CARFT is less than 2 points above that of ReFT, or shuffled "
    "annotations do as well",
    tokens=40_000,
    seconds=100,
    controls={"final accuracy": pl.Final(), "similarity": pl.Logged("similarity")},
    note="stability over seeds is read from the spread of the arms; the policy here starts from a "
    "trained model, not from SFT.",
)
