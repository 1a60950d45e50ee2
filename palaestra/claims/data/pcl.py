"""The claim of pcl: prompts of middling difficulty, found by a value model before they are tried."""

from dataclasses import replace
from typing import Any

import palaestra as pl
from palaestra.claims.arms import RATE, SIX_ARMS
from palaestra.claims.sentences import KNOWN, sentences
from palaestra.claims.starts import unmoved
from palaestra.recipes.data.pcl import build

PROMPTS, FACTOR = 16, 4
SEEN = 6  # steps after which the value model of `stopped` learns no more
VALUE_RATE = 3e-4  # of the value model, in all arms that have one


def arm(recipe: pl.Recipe, **differences: Any) -> pl.Recipe:
    return pl.vary(recipe, schedule=pl.Schedule(prompts=PROMPTS, steps=400), **differences)


def value_rate(lr: Any) -> pl.Recipe:
    return pl.override(build(factor=FACTOR), "learners.value.optimiser.lr", lr)


def plain() -> pl.Recipe:
    """PCL's policy and loss without a value model."""
    loss = pl.Clipped(reduce="tokens")
    return pl.vary(pl.recipe("grpo"), credit=pl.chain(pl.Center("group")), objective=loss)


ARMS = {
    "uniform": arm(plain()),
    "pcl": arm(value_rate(VALUE_RATE)),
    "stopped": arm(value_rate(pl.Jump(VALUE_RATE, 0.0, SEEN))),
    "untaught": arm(value_rate(0.0)),
    "filtered": arm(plain(), pool=pl.Mixed(size=PROMPTS)),
}

EXPERIMENT = pl.ledger.Experiment(
    words=__file__,
    start=unmoved(plain(), steps=10),
    arms=ARMS,
    expect=pl.ledger.Greater(
        "pcl", "uniform", by=0.10, why="a third more than the third or so that uniform draws find"
    ),
    reasons=(
        pl.ledger.Needs("untaught", "what the value model has learned"),
        pl.ledger.Needs("stopped", "that it follows the policy"),
    ),
    vetoes={
        "sampled accuracy": pl.ledger.Veto(
            pl.ledger.Final("sampled_after.pass@1.mean"), falls=0.03
        ),
    },
    measure=pl.ledger.Logged("groups_mixed", last=10),
    metric="share of groups whose rewards differ, last 10 steps",
    tuned={"learners.policy.optimiser.lr": (RATE,)},
    blocks=pl.ledger.TWENTY_SEEDS,
    task=SIX_ARMS,
    tokens=24_000,
    evaluate=96,
    samples=4,
    seconds=20.0,
    controls={
        "mixed groups, whole run": pl.ledger.Logged("groups_mixed", last=0),
        "answers sampled in a step": pl.ledger.Logged("episodes", last=0),
    },
)


def tried(recipe: pl.Recipe) -> pl.Recipe:
    """8 prompts with 4 answers a step."""
    return pl.vary(pl.override(recipe, "n", 4), schedule=pl.Schedule(prompts=8, steps=400))


SMALL = replace(
    EXPERIMENT,
    words=__file__ + "#small",
    start=pl.ledger.Untrained(),
    arms={
        "uniform": tried(plain()),
        "pcl": tried(value_rate(1e-4)),
        "untaught": tried(value_rate(0.0)),
    },
    reasons=EXPERIMENT.reasons[:1],
    **sentences(tokens=18_000, tuned={"learners.policy.optimiser.lr": (RATE,)}),
    note="Kinds of constraints are kept with different frequency, so a value model has something to read. Its rate "
    "is 1e-4 and was not varied. The measure moves with training, so it says which groups are found and not "
    f"what they are worth; accuracy is a veto. {KNOWN} Nothing was looked at before the declaration.",
)
