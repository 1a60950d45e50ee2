"""The claim of rapo: RAPO: forward KL + reference reweighting for exploration."""

import palaestra as pl
from palaestra.recipes.objectives.rapo import build

EXPERIMENT = pl.Experiment(
    claim="RAPO solves more held-out problems within 16 samples than GRPO with a reverse KL of the "
    "same weight.",
    arms={
        "reverse KL": pl.recipe("grpo", kl=0.01),
        "no KL": pl.recipe("grpo"),
        "forward KL": build(phi="none"),
        "group accuracy": build(phi="group"),
        "rapo": build(),
    },
    expect=pl.Greater("rapo", "reverse KL"),
    falsified_if="pass@16 of RAPO is less than 2 points above that of GRPO with a reverse KL",
    measure=pl.Final("sampled_after.pass@16.mean"),
    metric="held-out pass@16 (temperature 1)",
    task="count",
    tokens=60_000,
    evaluate=128,
    samples=16,
    controls={"accuracy": pl.Final(), "entropy": pl.Logged("entropy_sampled")},
    note="the weights alpha and beta are a choice, not the paper's; a hard slice that the base "
    "never solves needs scale.",
)
