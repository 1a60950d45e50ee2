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
    claim="On chains of 6 or 7 numbers modulo 9, forced starts of the reply that grow only where all "
    "answers are wrong give a held-out accuracy without hints at least 3 points above that of a fixed "
    "half of the working for every prompt.",
    quantity="about 5% on average over GRPO and over a curriculum, on six benchmarks",
    start=half_taught(pl.ledger.Untrained()),
    arms=ARMS,
    expect=pl.ledger.Greater(
        "ladder",
        "fixed share",
        by=0.03,
        why="three of the paper's five points",
    ),
    falsified_if="the ladder is less than 3 points above the fixed share, or more than 3 points below GRPO "
    "without hints",
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
    note="Hints are forced starts by steps of the working, as a hint in the prompt moves this model only from "
    "guessing to working, whatever it says: one dose of the start, on 40 tasks x 8: bare .34, first line "
    ".40, a quarter .42, half .52, three quarters .56, another task's half .23, and half in the prompt "
    ".19. So `ladder of prompts` is expected to gain nothing, and what a prompt hint does for a model "
    "that reads it cannot be shown here. All arms sample as many tokens, re-rolls included; a forced "
    "start is not sampled, so guided answers cost less: of the 40,000 tokens arms that guide every prompt "
    "make more steps, `fixed share` about 30, `easy to hard` 23 with the last three without a hint, and "
    "GRPO 16. What is shown is told as a share of the steps, weighed by sampled tokens, in `first line` "
    "as the number of lines, so of that arm the control says how many answers had one. The rates are "
    "those that leave a half-taught model whole. About a quarter of the groups are all wrong at the "
    "start, and only these are asked again: the ladder has room of that size.",
)
