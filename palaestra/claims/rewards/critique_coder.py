"""The claim of critique-coder: Critique-Coder: critique RL."""

import palaestra as pl
from palaestra.recipes.rewards.critique_coder import build

EXPERIMENT = pl.Experiment(
    claim="At equal sampled tokens, candidates included, held-out solving is better with 20% "
    "critiques than with none.",
    arms={"0%": build(0.0), "20%": build(), "50%": build(0.5), "100%": build(1.0)},
    expect=pl.Greater("20%", "0%"),
    falsified_if="solving alone teaches solving at least as well",
    measure=pl.Final("sampled_after.pass@1.mean"),
    metric="held-out accuracy (temperature 1)",
    task="add(d=4)",
    samples=8,
    tokens=30_000,
    seconds=40.0,
    controls={
        "right critiques, of all answers": pl.Logged("part/critique"),
        "length": pl.Logged("length"),
    },
    note="The candidates come from the start model and count as sampled; the paper's come from a "
    "stronger one, once. Sampled answers are measured, for the greedy ones end at 99.8% in both "
    "arms (a first run of five seeds, not published).",
)
