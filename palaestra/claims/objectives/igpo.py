"""The claim of igpo: Information Gain-based Policy Optimization."""

import palaestra as pl
from palaestra.claims.short import ACCURACY, THREE_POINTS
from palaestra.recipes.objectives.igpo import embedded


def few(recipe: pl.Recipe) -> pl.Recipe:
    """4 prompts with 8 answers a step."""
    return pl.vary(recipe, schedule=pl.Schedule(prompts=4, steps=400))


EXPERIMENT = pl.ledger.Experiment(
    words=__file__,
    arms={
        "grpo": few(pl.recipe("grpo")),
        "igpo": few(embedded()),
        "separate": few(embedded(pool="separate")),
        "shuffled": few(embedded(shuffle=True)),
    },
    expect=pl.ledger.Greater("igpo", "grpo", by=0.03, why=THREE_POINTS),
    reasons=(pl.ledger.Needs("shuffled", "that each turn has its own gain"),),
    measure=ACCURACY,
    metric="held-out success (temperature 1)",
    tuned={"optimiser.lr": (1e-4,)},
    blocks=pl.ledger.TWENTY_SEEDS,
    task="hop",
    tokens=12_000,
    evaluate=96,
    samples=8,
    seconds=20.0,
    controls={
        "gain a token": pl.ledger.Logged("gain", last=0),
        "groups with both kinds": pl.ledger.Logged("groups_mixed", last=0),
        "tokens an episode": pl.ledger.Logged("length"),
        "entropy": pl.ledger.Logged("entropy_sampled"),
    },
)
