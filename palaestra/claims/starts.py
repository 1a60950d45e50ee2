"""Starts that several claims share: short imitation, and a start that judges better than a coin."""

from typing import Any

from palaestra.catalogue import recipe
from palaestra.context import Collect, Context
from palaestra.rollout.collect import links
from palaestra.rollout.recorded import Demonstrate, recorded_episode
from palaestra.step import Recipe, Schedule
from palaestra.toys.base import final_answer, format_answer
from palaestra.toys.formats import judging_task
from palaestra.toys.mistakes import wrong_answer
from palaestra.types import Group, Key, rng_of, stage
from palaestra.update import AdamW
from palaestra.values import vary


@stage
class DemonstrateVerdict:
    """An answer to the task, worked or not, right or spoilt, half each, and the true verdict on it.

    The share `works` of the verdicts follows the problem's own working, with its answer beside the one that is judged; these
    can be learned. The others come at once and stay a coin, so the judge's accuracy comes to about (1 + works) / 2.
    """

    works: float = 0.5

    async def __call__(self, ctx: Context, key: Key, group: Group) -> Group:
        source: Any = ctx.bench.tasks
        task, rng = group.task, rng_of(key)
        right, how = bool(rng.random() < 0.5), "work" if rng.random() < 0.5 else "guess"
        answer = source.demonstration(task, rng, how) if right else wrong_answer(source, task, rng, how)
        own = [*source.steps(task), f"{task.answer} {final_answer(answer)}"] if rng.random() < self.works else []
        judged = judging_task(task, answer, right)
        made = recorded_episode(ctx, "policy", judged.prompt, format_answer(own, judged.answer), 1.0)
        return Group(task=task, episodes=(made,))


def imitation(
    steps: int, collect: Collect = Demonstrate(), *, prompts: int = 32, lr: float = 5e-4, warmup: int = 0
) -> Recipe:
    """A short imitation of demonstrations, `prompts` a step, at a constant rate after `warmup` steps."""
    return vary(
        recipe("sft"),
        collect=links(collect),
        optimiser=AdamW(lr=lr, warmup=warmup),
        schedule=Schedule(prompts=prompts, steps=steps),
    )


def judging_start() -> Recipe:
    """Makes a start that judges better than a coin: half of its verdicts are worked, and those are mostly true."""
    return imitation(80, DemonstrateVerdict(), warmup=5)
