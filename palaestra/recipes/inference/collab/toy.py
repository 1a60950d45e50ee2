"""Three agents for sums and a target that wants something of each: what collab runs on where the
user brings nothing.

One agent shows its working and is right, one answers at once and is mostly wrong, one says thanks
after what somebody answered to another problem. The target is

    right + polite / 2 + (1 - tokens / limit) / 2.
"""

from dataclasses import replace
from typing import Any, ClassVar

import palaestra as pl
from palaestra.recipes.inference.collab.program import ControlledDecoding

AGENTS = ("right", "short", "polite")
THANKS = "\nThanks!"


@pl.stage
class ThreeVirtues:
    """The target: 1 for a right answer, 1/2 for thanks at its end, 1/2 for what it spares of the
    limit.
    """

    async def __call__(self, ctx: pl.Context, group: pl.Group) -> list[pl.Reward]:
        return [self._worth(ctx, group.task, e) for e in group.episodes]

    def _worth(self, ctx: pl.Context, task: pl.Task, e: pl.Episode) -> pl.Reward:
        reply = e.rows[-1].segments[-1]
        polite, text = reply.text.endswith(THANKS), reply.text.removesuffix(THANKS)
        right = pl.tasks.exact_match(text, task)
        brief = 1 - len(reply.ids) / ctx.bench.max_tokens
        return pl.Reward(
            total=right + polite / 2 + brief / 2,
            parts={"right": right, "polite": float(polite), "brief": brief},
            solved=right == 1,
        )


@pl.stage
class DemonstrateThanks:
    """Adds an answer with thanks that somebody wrote to another problem, worked or at once: who
    imitates it learns to be polite and nothing of what is right.
    """

    recorded: ClassVar[bool] = True

    async def __call__(self, ctx: pl.Context, key: pl.Key, group: pl.Group) -> pl.Group:
        rng, tasks = pl.rng_of(key), ctx.bench.tasks
        other = tasks.task("train", int(rng.integers(2**31)))
        habit = "work" if rng.random() < 0.5 else "guess"
        reply = pl.tasks.demonstration(tasks, other, rng, habit) + THANKS
        made = pl.recorded_episode(ctx, "policy", group.task.prompt, reply, 1.0, judged=False)
        return replace(group, episodes=(*group.episodes, made))


def aligned(show: pl.Collect, steps: int, lr: float) -> pl.Recipe:
    """Imitation of one way to answer."""
    return pl.vary(
        pl.recipe("sft"),
        collect=pl.links(show),
        optimiser=pl.AdamW(lr=lr, warmup=5),
        schedule=pl.Schedule(prompts=32, steps=steps),
    )


def three_agents(
    method: Any = "collab",
    agents: tuple[str, ...] = AGENTS,
    steps: int = 20,
    lr: float = 3e-4,
    **settings: Any,
) -> pl.Pipeline:
    """The fine-tunes, of `steps` steps at the rate `lr`, and the program that decodes with them."""
    ways = {
        "right": pl.Demonstrate(habit="work"),
        "short": pl.Demonstrate(habit="guess"),
        "polite": DemonstrateThanks(),
    }
    models = {name: pl.Output(name) for name in ways}
    parts = {name: pl.warm(aligned(show, steps, lr)) for name, show in ways.items()}
    exam = ControlledDecoding(method, agents, ThreeVirtues(), **settings)
    return pl.Pipeline(parts={**parts, "exam": pl.Part(exam, models=models)})
