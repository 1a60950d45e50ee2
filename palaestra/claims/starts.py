"""What several claims share: the rates that are tried, short imitation, a start that judges better
than a coin, and the word that switches a habit.
"""

from dataclasses import replace
from typing import Any

import numpy as np

import palaestra as pl

RATES = (3e-5, 1e-4, 3e-4)  # of learning, that every arm is tried with
TWO_POINTS = "two points, which is what a reader of the paper's tables would call a difference"


@pl.stage
class DemonstrateVerdict:
    """An answer to the task, worked or not, right or spoilt, half each, and the true verdict on it.

    The share `works` of the verdicts follows the problem's own working, with its answer beside the
    one that is judged; these can be learned. The others come at once and stay a coin, so the
    judge's accuracy comes to about (1 + works) / 2.
    """

    works: float = 0.5

    async def __call__(self, ctx: pl.Context, key: pl.Key, group: pl.Group) -> pl.Group:
        source: Any = ctx.bench.tasks
        task, rng = group.task, pl.rng_of(key)
        right, how = bool(rng.random() < 0.5), "work" if rng.random() < 0.5 else "guess"
        answer = (
            source.demonstration(task, rng, how)
            if right
            else pl.toys.wrong_answer(source, task, rng, how)
        )
        own = (
            [*source.steps(task), f"{task.answer} {pl.tasks.final_answer(answer)}"]
            if rng.random() < self.works
            else []
        )
        judging = pl.tasks.judging_task(task, answer, right)
        made = pl.recorded_episode(
            ctx, "policy", judging.prompt, pl.tasks.format_answer(own, judging.answer), 1.0
        )
        return pl.Group(task=task, episodes=(made,))


@pl.stage
class ThinkInstead:
    """The question behind "think step by step": the control for guidance that may only switch a
    habit.
    """

    def __call__(self, ctx: pl.Context, group: pl.Group, rng: np.random.Generator) -> pl.Task:
        return pl.tasks.add_instruction(group.task, pl.tasks.THINK_STEPWISE)


def imitation(
    steps: int,
    collect: pl.Collect = pl.Demonstrate(),
    *,
    prompts: int = 32,
    lr: float = 5e-4,
    warmup: int = 0,
) -> pl.Recipe:
    """A short imitation of demonstrations, `prompts` a step, at a constant rate after `warmup`
    steps.
    """
    return pl.vary(
        pl.recipe("sft"),
        collect=pl.links(collect),
        optimiser=pl.AdamW(lr=lr, warmup=warmup),
        schedule=pl.Schedule(prompts=prompts, steps=steps),
    )


def unmoved(recipe: pl.Recipe, steps: int = 10) -> pl.Recipe:
    """The start as an arm, for measures that are logged by step: the same recipe, which samples for
    a few steps at a rate of 0.
    """
    return pl.vary(
        recipe, optimiser=pl.AdamW(lr=0.0), schedule=replace(recipe.schedule, steps=steps)
    )


def judging_start() -> pl.Recipe:
    """Makes a start that judges better than a coin: half of its verdicts are worked, and those are
    mostly true.
    """
    return imitation(80, DemonstrateVerdict(), warmup=5)


def half_taught(rl: pl.Runnable, steps: int = 25) -> pl.Pipeline:
    """So many steps of imitation of chains of 4 to 6 numbers modulo 9; then the arm."""
    easier = warm_chain(steps)
    return pl.Pipeline(parts={"sft": easier, "rl": pl.Part(rl, model=pl.Output("sft"))})


def warm_chain(steps: int = 25) -> pl.Part:
    """Imitation of chains of 4 to 6 numbers modulo 9: of 6 or 7 numbers about 0.4 are right then."""
    return pl.warm(imitation(steps), "chain(modulo=9)")
