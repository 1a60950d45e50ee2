"""The claim of nsr: Negative / positive sample reinforcement (NSR, PSR, Weighted-REINFORCE)."""

import palaestra as pl
from palaestra.recipes.objectives.nsr import build

EXPERIMENT = pl.Experiment(
    claim="After equal sampled tokens pass@16 is higher with NSR than with PSR.",
    arms={
        "psr": build(positive=1.0, negative=0.0),
        "nsr": build(),
        "w-reinforce": build(positive=0.1),
        "reinforce": build(positive=1.0),
        "grpo": pl.recipe("grpo"),
    },
    expect=pl.Greater("nsr", "psr"),
    falsified_if="PSR has a higher pass@16 than NSR",
    measure=pl.Final("sampled_after.pass@16.mean"),
    metric="held-out pass@16 (temperature 1)",
    task="count",
    tokens=60_000,
    evaluate=128,
    samples=16,
    controls={
        "pass@1": pl.Final("sampled_after.pass@1.mean"),
        "pass@4": pl.Final("sampled_after.pass@4.mean"),
        "entropy": pl.Logged("entropy_sampled"),
    },
    note="k ends at 16 here, at 256 in the paper. The small model is right in a few of a hundred "
    "samples, so NSR sees nearly the whole batch.",
)
