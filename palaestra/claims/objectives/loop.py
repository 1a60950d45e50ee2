"""The claim of loop: LOOP: leave-one-out PPO for interactive agents (AppWorld)."""

from typing import Any

import palaestra as pl
from palaestra.claims.short import ACCURACY, THREE_POINTS
from palaestra.claims.starts import RATES
from palaestra.recipes.objectives.loop import build


def reused(ratio: Any = "token", **options: Any) -> pl.Recipe:
    """4 prompts with 8 answers, and four steps of the optimiser on them."""
    learned = build(ratio, epochs=2, minibatches=2, **options)
    return pl.vary(learned, schedule=pl.Schedule(prompts=4, steps=400))


def once() -> pl.Recipe:
    """As many steps of the optimiser on the same batches, each answer in one of them."""
    learned = build(epochs=1, minibatches=4)
    return pl.vary(learned, schedule=pl.Schedule(prompts=4, steps=400))


def fresh() -> pl.Recipe:
    """A step of the optimiser for every prompt: about as many for equal tokens."""
    learned = build(epochs=1, minibatches=1)
    return pl.vary(learned, schedule=pl.Schedule(prompts=1, steps=400))


EXPERIMENT = pl.ledger.Experiment(
    claim="On T-hop, LOOP with ratios of tokens solves at least 3 points more held-out tasks in one sample, "
    "at equal sampled tokens and equal steps of the optimiser, than one pass over the same batches in minibatches "
    "of half the size.",
    quantity="of AppWorld's normal tests 71.3 with ratios of tokens, 64.1 of turns, 53.3 of trajectories; "
    "GRPO 58.0, RLOO 57.2",
    arms={
        "once": once(),
        "rloo": fresh(),
        "token": reused(),
        "turn": reused("turn"),
        "trajectory": reused("sequence"),
        "std": reused(baseline="std"),
    },
    expect=pl.ledger.Greater("token", "once", by=0.03, why=THREE_POINTS),
    falsified_if="LOOP is less than 3 points above one pass that takes as many steps",
    reasons=(
        pl.ledger.Needs("trajectory", "a ratio of each token"),
        pl.ledger.Needs("std", "an advantage that is not divided by a deviation"),
    ),
    measure=ACCURACY,
    metric="held-out success (temperature 1)",
    tuned={"optimiser.lr": RATES},
    task="hop",
    tokens=5_000,
    evaluate=96,
    samples=4,
    seconds=10.0,
    controls={
        "clipped": pl.ledger.Logged("clipped", last=0),
        "groups with both kinds": pl.ledger.Logged("groups_mixed", last=0),
        "tokens an episode": pl.ledger.Logged("length"),
    },
    note="The older test let LOOP take eight steps of the optimiser where RLOO took one. Here every arm takes one for "
    "every eight episodes that are sampled: LOOP two epochs of two minibatches on 32 episodes, `once` one epoch of four, "
    "`rloo` one step on eight fresh ones. So what is compared is reuse, with clipped ratios. Rounds of `rloo` are a "
    "quarter as large, so it overshoots its budget less, by 4% instead of 17%, and groups of one kind cost it a "
    "step. Rewards are 0 or 1. Looked at before the declaration, on trial seed 2000, was `token` with 8 prompts "
    "a step, 10,000 tokens and a rate of 1e-4: the start solves .56 greedily and about .25 in one sample, and "
    "training episodes were right in .66 after 4,900 tokens and in .88 after 11,400, so that the budget is half, "
    "to stay below the ceiling; two to five in a hundred tokens were clipped. With the budget of "
    "here `token` had .875 in one cell, `rloo` .870 and `once` .83. What is learned is to follow a path of one "
    "to three searches to its end, mostly a habit of the start. "
    "Cannot show: episodes of forty turns, in which ratios of whole trajectories come apart; behaviours such as "
    "reading the documentation.",
)
