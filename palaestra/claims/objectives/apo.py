"""The claim of apo: Asymmetric Policy Optimization (View-R1): DADS + STCR."""

import palaestra as pl
from palaestra.recipes.objectives.apo import build

EXPERIMENT = pl.Experiment(
    claim="STCR makes wrong answers shorter than GRPO with the same KL loss does.",
    arms={
        "grpo without KL": pl.recipe("grpo"),
        "grpo": pl.recipe("grpo", kl=1e-3),
        "dads": build(stcr=False),
        "stcr": build(dads=False, base=1.01),
        "apo": build(base=1.01),
    },
    expect=pl.Greater("grpo", "stcr", by=0.5),
    falsified_if="wrong answers are less than half a token shorter with STCR",
    measure=pl.Logged("length_wrong"),
    metric="mean length of wrong answers, last ten steps (tokens)",
    task="sort",
    tokens=80_000,
    controls={
        "accuracy": pl.Final(),
        "entropy": pl.Logged("entropy_sampled"),
        "KL": pl.Logged("kl_ref"),
    },
    note="On `sort` wrong answers are the longer ones, which STCR needs to act. base is 1.01, not "
    "1.00001, for answers of 20 tokens instead of thousands; forgetting is not measured.",
)
