"""The claim of ui-r1: few screens, chosen and learned by rules, against imitation of as many."""

from typing import Any

import palaestra as pl
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
    a while of imitation of what is asked. It is right on less than half of the screens.
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
