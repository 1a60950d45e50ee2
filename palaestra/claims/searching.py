"""What claims about agents that search share: demonstrations with a habit to be unlearned, and what
is logged.
"""

from dataclasses import replace
from typing import Any

import palaestra as pl
from palaestra.claims.starts import imitation


class HastyOracle:
    """`Search` whose oracle, in the share `hasty` of the turns that should search, answers with who
    was found last, which is wrong.
    """

    def __init__(self, world: pl.worlds.Search, hasty: float, key: pl.Key) -> None:
        self.world, self.hasty, self.rng = world, hasty, pl.rng_of(key)
        self.seats = world.seats

    def reset(self, task: pl.Task, key: pl.Key) -> pl.Frame:
        return self.world.reset(task, key)

    async def step(self, state: Any, acts: tuple[pl.Act, ...], key: pl.Key) -> pl.Frame:
        return await self.world.step(state, acts, key)

    def oracle(self, state: Any) -> str:
        text = self.world.oracle(state)
        form, _ = self.world.read(text)
        if form != "search" or self.rng.random() >= self.hasty:
            return text
        _, answer = self.world.forms
        return f"<{answer}>{state.task.meta['path'][len(state.outcomes)]}</{answer}>"


@pl.stage
class DemonstrateSearch:
    """An episode of `Search`, turn by turn, as its oracle plays it, or a `HastyOracle`."""

    hasty: float = 0.4

    async def __call__(self, ctx: pl.Context, key: pl.Key, group: pl.Group) -> pl.Group:
        world = ctx.bench.world
        if not isinstance(world, pl.worlds.Search):
            raise pl.UserError(f"{ctx.bench.name} is no world of searches")
        played = HastyOracle(replace(world, seconds=0.0), self.hasty, key)
        there = ctx.with_bench(replace(ctx.bench, world=played))
        return await pl.Demonstrate()(there, key, group)


def after_showing(learned: pl.Runnable, steps: int, lr: float = 2e-3) -> pl.Pipeline:
    """From a start that was shown episodes: it searches, and often answers too early."""
    sft = imitation(steps, DemonstrateSearch(), prompts=8, lr=lr, warmup=10)
    return pl.Pipeline(
        parts={"shown": pl.warm(sft), "rl": pl.Part(learned, model=pl.Output("shown"))}
    )


@pl.stage
class TellSearches:
    """Leaves in the parts of the reward what an episode did: searches, the share of the pages on the
    way to the answer that it found, turns that could not be read, and being cut.
    """

    async def __call__(self, ctx: pl.Context, key: pl.Key, group: pl.Group) -> pl.Group:
        return replace(group, episodes=tuple(map(self._told, group.episodes)))

    def _told(self, e: pl.Episode) -> pl.Episode:
        if not e.ok or e.reward is None:
            return e
        coverage = e.facts.get("coverage") or (0.0,)
        parts = {
            "searches": float(e.facts.get("calls", 0)),
            "coverage": float(coverage[-1]),
            "malformed": float(e.facts.get("malformed", 0)),
            "cut": float(e.status.startswith("truncated")),
        }
        return replace(e, reward=replace(e.reward, parts={**e.reward.parts, **parts}))
