"""The claim of endogenous-reward: Endogenous generalist reward from next-token prediction (inverse
RL).
"""

import palaestra as pl
from palaestra.recipes.rewards.endogenous_reward import build

EXPERIMENT = pl.Experiment(
    claim="On `rec`, answers sampled at temperature 1 are right more often after training on the "
    "endogenous reward.",
    arms={
        "start": pl.vary(build(), optimiser=pl.AdamW(lr=0.0)),
        "endogenous": build(),
        "per token": build(per_token=True),
    },
    expect=pl.Greater("endogenous", "start", by=0.05),
    falsified_if="sampled answers are less than five points better than those of the untrained "
    "model",
    measure=pl.Final("sampled_after.pass@1.mean"),
    metric="held-out accuracy (temperature 1)",
    task="rec",
    tokens=60_000,
    samples=8,
    seconds=40.0,
    controls={
        "greedy accuracy": pl.Final(),
        "pass@8": pl.Final("sampled_after.pass@8.mean"),
        "length": pl.Logged("length"),
        "entropy": pl.Logged("entropy_sampled"),
    },
    note="On `rec` greedy decoding is better than sampling before any training, so sharpening must "
    "help; the greedy accuracy of the start is the bound it is to be held against. Where the "
    "likeliest answer is wrong, as on `chain`, the same reward does harm.",
)
