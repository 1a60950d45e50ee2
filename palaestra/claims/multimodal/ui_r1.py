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
    claim="After 300,000 sampled tokens on 136 screens that the start gets wrong, rewards by rules "
    "solve at least 5 points more screens of other layouts and of another background than imitation "
    "of 136 screens in as many draws does.",
    quantity="136 chosen screens add 15 points to the action's type and 10.3 to its place on "
    "AndroidControl, and 22.1 on ScreenSpot",
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
    falsified_if="rules solve less than 5 points more screens of the other background than imitation",
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
    note="The start is right on 0.67 and 0.71 of the held-out screens of its own background (128 each), "
    "on 0.30 and 0.33 of those on grey, on 0.01 of those on light, where nothing can be told apart, "
    "and on 0.05 to 0.08 without a picture. So this experiment cannot show a gain where the start "
    "sees nothing, nor one that comes of knowledge which a model of billions has before RL and a model "
    "of a few hundred steps has not: screens that this start gets wrong may be beyond what 8 samples "
    "reach, and then choosing them hurts. A trial of two seeds at a rate of 1e-4 was looked at before "
    "the declaration: rules on chosen screens fell to 0.41 and 0.35 on their own background and to "
    "0.21 and 0.13 on grey, imitation of the first 136 went to 0.61 and 0.64, and 0.33 and 0.32. "
    "Hence a lower rate is among those that are tried, of every arm. A start of 40 steps of imitation "
    "in place of 100 was right on none, so it was left. Imitation draws the first screens, since what "
    "a choice of hard ones samples would count as its budget; `first` is rules on the same ones. "
    "100 steps of 8 screens are 5.9 epochs, the paper has 8; rules end with the tokens, at about 65 "
    "steps. `blind` is trained without the picture and measured with it. UI-R1-E's second stage, "
    "answers without thoughts, would need a start that knows them, and is no arm.",
)
