"""The claim of ghpo: hints that grow only as far as a prompt needs them."""

from typing import Any

import palaestra as pl
from palaestra.claims.starts import RATES, half_taught
from palaestra.recipes.data.ghpo import build

LADDER = (0.25, 0.5, 0.75)
FALL = 20  # steps, some three before its tokens are spent, over which the curriculum's share falls to nothing


def guided(shares: tuple[Any, ...] = LADDER, **options: Any) -> pl.Recipe:
    """Hints are forced starts by whole steps, unless `options` say otherwise."""
    setting: dict[str, Any] = {"unit": "steps", "place": "start", "form": 0.0, **options}
    learned = build(shares, **setting)
    return pl.vary(learned, schedule=pl.Schedule(prompts=8, steps=100))


def curriculum() -> pl.Recipe:
    """Every prompt is guided, by a share that falls from three quarters to nothing."""
    return guided((pl.Linear(0.75, 0.0, FALL),), every=True)


ARMS = {
    "grpo": half_taught(guided(())),
    "fixed share": half_taught(guided((0.5,), every=True)),
    "easy to hard": half_taught(curriculum()),
    "ladder": half_taught(guided()),
    "ladder of prompts": half_taught(guided(place="prompt")),
    "half where all fail": half_taught(guided((0.5,))),
    "first line": half_taught(guided((1.0,), unit="lines")),
    "shuffled": half_taught(guided(shuffled=True)),
}

EXPERIMENT = pl.ledger.Experiment(
    words=__file__,
    start=half_taught(pl.ledger.Untrained()),
    arms=ARMS,
    expect=pl.ledger.Greater(
        "ladder",
        "fixed share",
        by=0.03,
        why="three of the paper's five points",
    ),
    reasons=(
        pl.ledger.Needs("grpo", "hints"),
        pl.ledger.Needs("half where all fail", "a hint that grows"),
        pl.ledger.Needs("first line", "more than a first line"),
        pl.ledger.Needs("shuffled", "what the hint says of this task"),
    ),
    vetoes={
        "without hints": pl.ledger.Veto(
            pl.ledger.Final("sampled_after.pass@1.mean"), 0.03, against="grpo"
        )
    },
    measure=pl.ledger.Final("sampled_after.pass@1.mean"),
    metric="held-out accuracy without hints (temperature 1)",
    constants={arm: {"rl.optimiser.lr": RATES[:2]} for arm in ARMS},
    task="chain(modulo=9,operands=(6,7),max_tokens=96)",
    tokens=40_000,
    evaluate=128,
    samples=4,
    seconds=90.0,
    controls={
        "mean share shown": pl.ledger.Logged("is:guided", last=0),
        "mean share shown, last steps": pl.ledger.Logged("is:guided"),
        "groups with a gradient": pl.ledger.Logged("groups_mixed_trained", last=0),
    },
)
