"""The claim of spiral: self-play on zero-sum games, with a baseline for each role."""

from collections.abc import Sequence

import numpy as np

import palaestra as pl
from palaestra.claims.starts import RATES, imitation
from palaestra.recipes.games.spiral import build

SHOWN = 60  # steps of imitation
PLAY = "evaluations.play.after"
LONGEST = 4  # tokens of a reply; a legal one has two


def play_at_random(messages: Sequence[pl.Message], rng: np.random.Generator) -> str:
    """Kuhn poker by a coin."""
    return "pb"[int(rng.integers(2))]


CHANCE = pl.rollout.Alternate(pl.rollout.Acted(pl.rollout.Script(fn=play_at_random, name="chance")))


def after_showing(learned: pl.Recipe) -> pl.Pipeline:
    """From a start that was shown hands of the naive player, measured by its exact play."""
    learned = pl.override(learned, "sample.max_tokens", LONGEST)
    learned = pl.vary(learned, evaluate={"play": pl.run.Exploitability()})
    sft = pl.warm(imitation(SHOWN, warmup=5))
    return pl.Pipeline(parts={"shown": sft, "rl": pl.Part(learned, model=pl.Output("shown"))})


def still() -> pl.Pipeline:
    """The start, which plays nothing."""
    return after_showing(pl.vary(build(length=64), schedule=pl.Schedule(prompts=64, steps=0)))


def against_chance() -> pl.Pipeline:
    """One seat of each game is the policy's, drawn; the other is played by a coin, at all times."""
    return pl.override(
        after_showing(build(length=64)), "parts.rl.runnable.collect.links.0.cast", CHANCE
    )


EXPERIMENT = pl.ledger.Experiment(
    words=__file__,
    start=still(),
    arms={
        "fixed opponent": against_chance(),
        "self-play": after_showing(build(length=64)),
        "one baseline": after_showing(build(baseline="batch", length=64)),
        "no baseline": after_showing(build(baseline="none", length=64)),
        "earlier selves": after_showing(build(past=0.5, every=10, length=64)),
    },
    expect=pl.ledger.Greater(
        "self-play",
        "fixed opponent",
        by=0.05,
        why="a tenth of what uniform play can be exploited for, 11/24 chips",
    ),
    reasons=(pl.ledger.Needs("one baseline", "a baseline for each role"),),
    measure=pl.ledger.Less(pl.ledger.Final(f"{PLAY}.exploitability")),
    metric="- exploitability, chips a hand, exact, at temperature 1",
    tuned={"parts.rl.runnable.learners.policy.optimiser.lr": tuple(r / 3 for r in RATES)},
    task="kuhn",
    tokens=20_000,
    evaluate=0,
    seconds=60.0,
    controls={
        "chips a hand from a coin": pl.ledger.Final(f"{PLAY}.against_uniform"),
        "share of illegal replies": pl.ledger.Final(f"{PLAY}.illegal"),
        "exploitability of the likeliest moves": pl.ledger.Final(f"{PLAY}.greedy"),
    },
)
