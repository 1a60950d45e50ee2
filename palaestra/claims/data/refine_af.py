"""The claim of refine-af: RL from automatic feedback before a model writes what another one imitates."""

from typing import Any

import palaestra as pl
from palaestra.claims.starts import RATES
from palaestra.recipes.data.refine_af import build


def small(**options: Any) -> pl.Pipeline:
    """8 prompts a step in the second stage."""
    made = build(**options)
    if "rl" not in made.parts:
        return made
    return pl.override(
        pl.override(made, "parts.rl.runnable.schedule.prompts", 8), "rl.schedule.steps", 60
    )


BASE = "self-instruct"
ARMS = {
    BASE: small(rl=False),
    "random": small(feedback="random"),
    "rule": small(),
    "positive": small(positive=True),
}

EXPERIMENT = pl.ledger.Experiment(
    words=__file__,
    arms=ARMS,
    expect=pl.ledger.Greater(
        "rule", BASE, by=0.1, why="a gain that most of twelve domains would have to share"
    ),
    reasons=(pl.ledger.Needs("random", "that the feedback says something of the instance"),),
    measure=pl.ledger.Final("sampled_after.pass@1.mean"),
    metric="held-out accuracy of the fresh model (temperature 1)",
    constants={
        a: {"sft.optimiser.lr": RATES[1:], **({"rl.optimiser.lr": RATES[:2]} if a != BASE else {})}
        for a in ARMS
    },
    task="add(d=3)+add(d=5)+bool(d=3)+bool(d=5)+sort(d=3)+sort(d=5)",
    tokens=30_000,
    tuning_tokens=12_000,
    evaluate=192,
    samples=4,
    seconds=90.0,
    controls={
        f"{what}, last steps of RL": pl.ledger.Logged(f"part/{part}")
        for part, what in (
            ("und", "readable"),
            ("nat", "answer stated"),
            ("coh", "agreement"),
            ("rew", "verdict"),
        )
    },
)
