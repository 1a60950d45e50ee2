"""How a task is attempted and judged: `async collect(ctx, key, group) -> group`, all rounds of one prompt.

Links chain: `Links((Sample(8), Score()))`. A link returns a new group; what it adds later links may judge, mute or extend.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from palaestra.rollout.play import play
from palaestra.types import Collect, Episode, Fault, Group, Key, Player, Sampling, stage

if TYPE_CHECKING:
    from palaestra.runtime.context import Context

RETRIES = 1  # of an episode that an infrastructure fault ended


@stage
class Links:
    """One link after the other; each has its own key."""

    links: tuple[Collect, ...]

    async def __call__(self, ctx: Context, key: Key, group: Group) -> Group:
        for i, link in enumerate(self.links):
            group = await link(ctx, (*key, i), group)
        return group


def links(*parts: Collect) -> Links:
    """`links(Sample(8), Score())`."""
    return Links(parts)


@stage
class Sample:
    """Plays `n` more episodes of the group's task. All share the world's seed; each has its own sampling seed.

    Seats that `cast` does not name are played by the policy. max_tokens 0 = what the bench allows for a turn.
    """

    n: int = 8
    temperature: float = 1.0
    top_k: int = 0
    top_p: float = 1.0
    min_p: float = 0.0
    max_tokens: int = 0
    model: str = "policy"

    async def __call__(self, ctx: Context, key: Key, group: Group) -> Group:
        sampling = Sampling(
            temperature=self.temperature,
            top_k=self.top_k,
            top_p=self.top_p,
            min_p=self.min_p,
            max_tokens=self.max_tokens or ctx.bench.max_tokens,
        )
        cast = ctx.cast(self.model, sampling)
        first = len(group.episodes)
        played = await asyncio.gather(*(attempt(ctx, cast, key, first + i, group) for i in range(self.n)))
        return replace(group, episodes=(*group.episodes, *played))


async def attempt(ctx: Context, cast: Mapping[str, Player], key: Key, index: int, group: Group) -> Episode:
    """One episode; a fault is tried again with a seed of its own before it becomes a status."""
    episode = Episode(status="error:never tried")
    for retry in range(RETRIES + 1):
        episode = await play(
            ctx.bench.world, cast, group.task, (*key, index, retry), (*key, "world"), max_turns=ctx.bench.max_turns
        )
        if episode.ok:
            break
    return episode


@stage
class Score:
    """Gives every unscored episode its reward: the bench's reward, or what the world paid. A fault is a status, never a 0."""

    async def __call__(self, ctx: Context, key: Key, group: Group) -> Group:
        if ctx.bench.reward is None:
            unpaid = [e.status for e in group.episodes if e.ok and e.reward is None]
            if unpaid:
                raise Fault("reward", f"the world {ctx.bench.name!r} paid nothing to {len(unpaid)} episodes")
            return group
        todo = [i for i, e in enumerate(group.episodes) if e.ok and e.reward is None]
        if not todo:
            return group
        episodes = list(group.episodes)
        try:
            with ctx.judging():
                rewards = await ctx.bench.reward(ctx, replace(group, episodes=tuple(episodes[i] for i in todo)))
        except Fault as fault:
            for i in todo:
                episodes[i] = replace(
                    episodes[i], status=f"error:{fault.cause}", facts={**episodes[i].facts, "error": str(fault)}
                )
            return replace(group, episodes=tuple(episodes))
        if len(rewards) != len(todo):
            raise ValueError(
                f"the reward gave {len(rewards)} values for {len(todo)} episodes of task {group.task.id!r}"
            )
        for i, reward in zip(todo, rewards, strict=True):
            if not np.isfinite(reward.total):
                raise Fault("reward", f"a reward of {reward.total} for task {group.task.id!r}")
            episodes[i] = replace(episodes[i], reward=reward)
        return replace(group, episodes=tuple(episodes))


@stage
class MuteTruncated:
    """Truncated episodes count in the statistics and train nothing (their answer was cut, not wrong)."""

    async def __call__(self, ctx: Context, key: Key, group: Group) -> Group:
        return replace(
            group, episodes=tuple(replace(e, muted=e.muted or e.status.startswith("truncated")) for e in group.episodes)
        )


@stage
class When:
    """Runs `link` for groups where `test(rewards)` holds."""

    test: Callable[[np.ndarray], bool]
    link: Collect

    async def __call__(self, ctx: Context, key: Key, group: Group) -> Group:
        return await self.link(ctx, key, group) if self.test(rewards(group)) else group


@stage
class Until:
    """Repeats `link` up to `rounds` times until `test(rewards)` holds."""

    test: Callable[[np.ndarray], bool]
    link: Collect
    rounds: int = 4

    async def __call__(self, ctx: Context, key: Key, group: Group) -> Group:
        for n in range(self.rounds):
            group = await self.link(ctx, (*key, n), group)
            if self.test(rewards(group)):
                break
        return group


def rewards(group: Group) -> np.ndarray:
    """[G] totals of the valid episodes."""
    return np.array([e.total for e in group.valid])
