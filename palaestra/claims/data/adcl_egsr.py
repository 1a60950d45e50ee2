"""The claim of adcl-egsr: difficulty that is measured anew before each batch."""

from typing import Any

import palaestra as pl
from palaestra.claims.starts import RATES
from palaestra.recipes.data.adcl_egsr import build

TASKS = 160


def as_given(task: pl.Task) -> float:
    return 0.0


def long_first(task: pl.Task) -> float:
    """The longer the easier: the order turned round."""
    return -float(len(task.prompt[-1].content))


def arm(**options: Any) -> pl.Recipe:
    """8 prompts a step, of the same 160 tasks again and again."""
    setting: dict[str, Any] = {"tasks": TASKS, "probe": 2, "expert": "", "say": "", **options}
    return pl.vary(build(**setting), schedule=pl.Schedule(prompts=8, steps=200))


def in_order(difficulty: Any) -> pl.Recipe:
    return pl.vary(arm(), draw=pl.curriculum.EasyToHard(TASKS, 1, difficulty=difficulty))


ARMS = {
    "random": in_order(as_given),
    "static": arm(curriculum="static"),
    "adcl": arm(),
    "hard to easy": in_order(long_first),
    "egsr": pl.vary(
        arm(expert="solution"), draw=pl.curriculum.EasyToHard(TASKS, 1, difficulty=as_given)
    ),
    "both": arm(expert="solution"),
}

EXPERIMENT = pl.ledger.Experiment(
    words=__file__,
    arms=ARMS,
    expect=pl.ledger.Greater(
        "adcl", "random", by=0.03, why="a third of the smaller gain in the paper"
    ),
    reasons=(
        pl.ledger.Needs("static", "difficulty that is measured anew"),
        pl.ledger.Needs("hard to easy", "easy tasks first"),
    ),
    vetoes={
        "the order of the start": pl.ledger.Veto(
            pl.ledger.Final("sampled_after.pass@1.mean"), falls=0.0, against="static"
        )
    },
    measure=pl.ledger.Final("sampled_after.pass@1.mean"),
    metric="held-out accuracy (temperature 1)",
    tuned={"optimiser.lr": RATES},
    task="bool(d=3)+bool(d=4)+bool(d=5)+bool(d=6)",
    tokens=45_000,
    evaluate=96,
    samples=4,
    seconds=25.0,
    controls={
        "groups with a gradient": pl.ledger.Logged("groups_mixed", last=0),
        "share of guided tokens": pl.ledger.Logged("is:guided", last=0),
    },
)
