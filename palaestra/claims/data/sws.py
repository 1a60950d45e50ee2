"""The claim of sws: problems written for what a first RL run failed to learn."""

from typing import Literal

import palaestra as pl
from palaestra.claims.starts import RATES
from palaestra.recipes.data.sws import build


def continued(weigh: Literal["weak", "even", "none"]) -> pl.Recipe:
    """8 prompts a step: three epochs of 48 seeds, then these and 48 written ones."""
    learned = build(seeds=48, epochs=3, written=48, weigh=weigh)
    return pl.vary(learned, schedule=pl.Schedule(prompts=8, steps=200))


EXPERIMENT = pl.ledger.Experiment(
    claim="On six domains of which three are out of the start's reach, problems written in proportion to "
    "what three epochs of RL failed to learn give a held-out accuracy at least 3 points above that of as "
    "many from all domains alike.",
    quantity="10.0 points on average of eight benchmarks at 7B over the model before, 7.7 at 32B",
    arms={
        "seeds alone": continued("none"),
        "even": continued("even"),
        "weak": continued("weak"),
    },
    expect=pl.ledger.Greater(
        "weak", "even", by=0.03, why="about a third of the paper's gain over training without"
    ),
    falsified_if="as many problems of all domains alike do as well, to 3 points",
    reasons=(pl.ledger.Needs("seeds alone", "problems that are written at all"),),
    measure=pl.ledger.Final("sampled_after.pass@1.mean"),
    metric="held-out accuracy over all six domains (temperature 1)",
    tuned={"optimiser.lr": RATES[:2]},
    task="add(d=2)+bool(d=2)+sort(d=2)+chain(modulo=9)+knights(d=2)+knights(d=4)",
    tokens=60_000,
    tuning_tokens=30_000,
    evaluate=192,
    samples=4,
    seconds=90.0,
    controls={"groups with a gradient": pl.ledger.Logged("groups_mixed")},
    note="A rate of 3e-4 is not tried, at which seeds of such tasks fall in other claims. "
    "A procedural writer stands for the paper's 70B model: it writes problems of a domain, with "
    "right answers, so neither concepts nor judges nor votes are at work, only whose problems are "
    "written and that the policy solves some of them. A weak problem is one that was never solved half "
    "of the time and ever less so, of three numbers from 8 attempts each: chance makes some weak. In one "
    "trial of ten steps on other domains 3 of 32 seeds were, and 13 of 24 written problems stayed in the "
    "band. Checking the band is sampled, and counts. The run goes on from where the first phase ended.",
)
