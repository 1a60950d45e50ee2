"""The claim of ui-r1: few screens, chosen and learned by rules, against imitation of as many."""

from typing import Any

import palaestra as pl
from palaestra.claims.starts import RATES
from palaestra.recipes.multimodal.ui_r1 import FewScreens, build

ITEMS = 136  # as in the paper


def imitation_with_eyes(
    steps: int, lr: float = 1e-3, prompts: int = 32, items: int = 0
) -> pl.Recipe:
    """Demonstrations to a model with eyes; `items` = 0 takes a fresh one every time."""
    return pl.vary(
        pl.recipe("sft"),
        draw=FewScreens(items, "first") if items else pl.Shuffled(),
        heads=("eyes",),
        optimiser=pl.AdamW(lr=lr, warmup=20),
        schedule=pl.Schedule(prompts=prompts, steps=steps),
    )


def after_seeing(learned: pl.Runnable, task: str = "") -> pl.Pipeline:
    """From one start for all arms and seeds: eyes that found single widgets, then one of two, and
    a while of imitation of what is asked. It is right on two thirds of the screens.
    """

    def warm(steps: int, problem: str, after: str = "") -> pl.Part:
        start = pl.Output(after) if after else None
        return pl.warm(imitation_with_eyes(steps), problem, seed=0, model=start)

    return pl.Pipeline(
        parts={
            "look": warm(180, "screen(widgets=1,asks=find)"),
            "find": warm(300, "screen(asks=find)", "look"),
            "shown": warm(100, "screen", "find"),
            "rl": pl.Part(learned, model=pl.Output("shown"), task=task),
        }
    )


def by_rules(**options: Any) -> pl.Recipe:
    """An arm by rules, 8 screens x 8 answers a step."""
    return pl.vary(build(**options), schedule=pl.Schedule(prompts=8, steps=100))


RATE = "parts.rl.runnable.learners.policy.optimiser.lr"
GREY = "screen(theme=grey)"  # the same screens on a background that nothing was trained on
BLIND = "screen(blind=True)"  # the same questions without their picture


EXPERIMENT = pl.ledger.Experiment(
    words=__file__,
    start=after_seeing(pl.ledger.Untrained()),
    arms={
        "imitation": after_seeing(imitation_with_eyes(100, 1e-4, 8, ITEMS)),
        "imitation of fresh screens": after_seeing(imitation_with_eyes(100, 1e-4, 8)),
        "rules": after_seeing(by_rules(items=ITEMS)),
        "first": after_seeing(by_rules(items=ITEMS, choice="first")),
        "no place": after_seeing(by_rules(items=ITEMS, parts=("type", "format"))),
        "length": after_seeing(by_rules(items=ITEMS, length=True)),
        "blind": after_seeing(by_rules(items=ITEMS), BLIND),
    },
    expect=pl.ledger.Greater(
        "rules", "imitation", by=0.05, why="half of the paper's smallest gain"
    ),
    reasons=(
        pl.ledger.Needs("first", "screens that the start gets wrong"),
        pl.ledger.Needs("no place", "a reward for the place"),
        pl.ledger.Needs("blind", "the picture"),
    ),
    measure=pl.ledger.Final(f"evaluations.{GREY}.after.greedy.mean"),
    metric="right action at the right place, greedy, on held-out layouts of another background",
    tuned={RATE: (1e-5, *RATES[:2])},
    task="screen",
    tokens=300_000,
    tuning_tokens=150_000,
    exams=(GREY, BLIND),
    evaluate=128,
    seconds=150.0,
    controls={
        "its own task": pl.ledger.Final(),
        "without the picture": pl.ledger.Final(f"evaluations.{BLIND}.after.greedy.mean"),
        "tokens an answer": pl.ledger.Logged("length"),
    },
)
