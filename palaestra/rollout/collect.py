"""How a task is attempted and judged: `async collect(ctx, key, group) -> group`, all rounds of one
prompt.

Links chain: `Links((Sample(8), Score()))`. A link returns a new group; what it adds later links may
judge, mute or extend.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from palaestra.abilities import KnowsSolved, ReplaysRecords
from palaestra.context import Collect, RewardFn
from palaestra.declared import declare
from palaestra.errors import Fault, UserError
from palaestra.rollout.cast import Cast
from palaestra.rollout.play import play
from palaestra.types import (
    SOLVED_TOTAL,
    Episode,
    Group,
    Key,
    Player,
    Reward,
    Sampling,
    need_at_least,
    stage,
)

if TYPE_CHECKING:
    from palaestra.context import Context, Rollouts, Situation

RETRIES = 1  # of an episode that an infrastructure fault ended
# before the world came to its end
CUT_STATUSES = ("truncated:turns", "truncated:context", "truncated:summaries")


@stage
class Links:
    """One link after the other; each has its own key."""

    links: tuple[Collect, ...]

    @property
    def recorded(self) -> bool:
        """Whether no link samples."""
        return all(isinstance(x, ReplaysRecords) and x.recorded for x in self.links)

    async def __call__(self, ctx: Context, key: Key, group: Group) -> Group:
        for i, link in enumerate(self.links):
            group = await link(ctx, (*key, i), group)
        return group


def links(*parts: Collect) -> Links:
    """Collection from parts in their order: `links(Sample(8), Score())`.

    Args:
        parts: each takes a group and gives one; the first samples, a later one judges.
    """
    return Links(parts)


@stage
class Sample:
    """Plays `n` more episodes of the group's task. All share the world's seed; each has its own
    sampling seed.

    Every seat without a player of its own is `model`'s, but for those that `seats` gives to another
    model, e.g. (("verifier", "verifier"),). max_tokens 0 = what the bench allows for a turn, turns
    0 = for an episode; a horizon that grows with the steps is turns=Staircase((4, 8, 16), 100). A
    `cast` says for each episode who sits where instead, see `rollout.cast`.
    """

    n: int = 8
    temperature: float = 1.0
    top_k: int = 0
    top_p: float = 1.0
    min_p: float = 0.0
    max_tokens: int = 0
    model: str = "policy"
    seats: tuple[tuple[str, str], ...] = ()
    turns: int = 0
    cast: Cast | None = None

    def __post_init__(self) -> None:
        need_at_least(self, n=1, temperature=0, top_k=0, top_p=0, min_p=0, max_tokens=0, turns=0)

    async def __call__(self, ctx: Context, key: Key, group: Group) -> Group:
        return await self.play(ctx, key, group, self.players(ctx))

    def sampling(self, ctx: Situation) -> Sampling:
        """How tokens are drawn."""
        return Sampling(
            temperature=self.temperature,
            top_k=self.top_k,
            top_p=self.top_p,
            min_p=self.min_p,
            max_tokens=self.max_tokens or ctx.bench.max_tokens,
        )

    def players(self, ctx: Rollouts) -> dict[str, Player]:
        """Who fills the seats, where no cast says otherwise."""
        sampling = self.sampling(ctx)
        players = dict(ctx.cast(self.model, sampling))
        return players | {seat: ctx.cast(model, sampling)[seat] for seat, model in self.seats}

    async def play(
        self, ctx: Context, key: Key, group: Group, players: Mapping[str, Player]
    ) -> Group:
        """The group with `n` more episodes of these players, or of those that a cast has instead."""

        def seated(i: int) -> Mapping[str, Player]:
            if self.cast is None:
                return players
            return self.cast(ctx, (*key, i, "cast"), self.sampling(ctx), players)

        first = len(group.episodes)
        numbers = range(first, first + self.n)
        played = await asyncio.gather(
            *(attempt(ctx, seated(i), key, i, group, self.turns) for i in numbers)
        )
        return replace(group, episodes=(*group.episodes, *played))


async def attempt(
    ctx: Situation, cast: Mapping[str, Player], key: Key, index: int, group: Group, turns: int = 0
) -> Episode:
    """One episode; a fault, but for a reward that says nothing, is tried again with a seed of its own before it becomes a status.
    `turns` 0 = what the bench allows.
    """
    episode = Episode(status="error:never tried")
    for retry in range(RETRIES + 1):
        episode = await play(
            ctx.bench.world,
            cast,
            group.task,
            (*key, index, retry),
            (*key, "world"),
            max_turns=turns or ctx.bench.max_turns,
        )
        if episode.ok or episode.unjudged:
            break
    return episode


@declare(facts=("error", ("labels", dict, "labels that the reward gave beside the number")))
@stage
class Score:
    """Gives every unscored episode its reward: `reward`, else the bench's, else what the world
    paid, which is 0 where an episode was cut before any pay. A fault is a status, never a 0.

    With `shadow` the bench is asked as well: what it pays becomes the part "gold", which trains
    nothing.
    """

    reward: RewardFn | None = None
    shadow: bool = False

    async def __call__(self, ctx: Context, key: Key, group: Group) -> Group:
        judge = self.reward or ctx.bench.reward
        if judge is None:
            return replace(group, episodes=tuple(_settle_pay(ctx, e) for e in group.episodes))
        todo = [i for i, e in enumerate(group.episodes) if e.ok and e.reward is None]
        episodes = list(group.episodes)
        waiting = replace(group, episodes=tuple(episodes[i] for i in todo))
        for i, reward in zip(todo, await judge_group(ctx, judge, waiting), strict=True):
            episodes[i] = apply_reward(episodes[i], reward)
        if not (self.shadow and self.reward and ctx.bench.reward) or judge == ctx.bench.reward:
            return replace(group, episodes=tuple(episodes))
        for i, gold in zip(todo, await judge_group(ctx, ctx.bench.reward, waiting), strict=True):
            own = episodes[i].reward
            if own is None or isinstance(gold, Fault):
                episodes[i] = apply_reward(episodes[i], gold) if own else episodes[i]
            else:
                episodes[i] = replace(
                    episodes[i], reward=replace(own, parts={**own.parts, "gold": gold.total})
                )
        return replace(group, episodes=tuple(episodes))


def _settle_pay(ctx: Situation, e: Episode) -> Episode:
    """What the world paid, with the parts that it named in the fact "reward_parts", and whether it
    is the pay of a solved task. Raises Fault where it came to its end and paid nothing.
    """
    if not e.ok:
        return e
    if e.reward is None and e.status not in CUT_STATUSES:
        raise Fault(
            "reward", f"the world {ctx.bench.name!r} paid nothing to an episode that is {e.status}"
        )
    paid, world = e.reward or Reward(total=0.0), ctx.bench.world
    enough = world.solved if isinstance(world, KnowsSolved) else None
    known = paid.solved if enough is None else paid.total >= enough - (1 - SOLVED_TOTAL)
    parts = {**paid.parts, **e.facts.get("reward_parts", {})}
    return replace(e, reward=replace(paid, solved=known, parts=parts))


async def judge_group(ctx: Context, judge: RewardFn, group: Group) -> Sequence[Reward | Fault]:
    """A reward or a fault for each episode. A fault of the whole judge is one of every episode."""
    if not group.episodes:
        return []
    try:
        if ctx:
            with ctx.judging():
                rewards = await ctx.verdicts(judge, group)
        else:  # an audit has no context
            rewards = await judge(ctx, group)
    except Fault as fault:
        return [fault] * len(group.episodes)
    if len(rewards) != len(group.episodes):
        raise UserError(
            f"the reward gave {len(rewards)} values for {len(group.episodes)} episodes of task "
            f"{group.task.id!r}"
        )
    for each in rewards:
        if isinstance(each, Reward) and not np.isfinite(each.total):
            raise Fault("reward", f"a reward of {each.total} for task {group.task.id!r}")
    return rewards


def apply_reward(episode: Episode, reward: Reward | Fault) -> Episode:
    """The episode with its reward; with a fault an error without one."""
    if isinstance(reward, Reward):
        facts = {**episode.facts, "labels": dict(reward.labels)} if reward.labels else episode.facts
        return replace(episode, reward=reward, facts=facts)
    facts = {**episode.facts, "error": str(reward)}
    return replace(episode, status=f"error:{reward.cause}", reward=None, facts=facts)


@stage
class MuteTruncated:
    """Truncated episodes count in the statistics and train nothing (their answer was cut, not
    wrong).
    """

    async def __call__(self, ctx: Context, key: Key, group: Group) -> Group:
        return replace(
            group,
            episodes=tuple(
                replace(e, muted=e.muted or e.status.startswith("truncated"))
                for e in group.episodes
            ),
        )


@stage
class When:
    """Runs `link` for groups where `test(rewards)` holds; with `part`, the test is of that part of
    each reward that has it.
    """

    test: Callable[[np.ndarray], bool]
    link: Collect
    part: str = ""

    async def __call__(self, ctx: Context, key: Key, group: Group) -> Group:
        values = rewards(group, self.part)
        return await self.link(ctx, key, group) if self.test(values) else group


@stage
class Until:
    """Repeats `link` up to `rounds` times until `test(rewards)` holds; `part` as in `When`."""

    test: Callable[[np.ndarray], bool]
    link: Collect
    rounds: int = 4
    part: str = ""

    async def __call__(self, ctx: Context, key: Key, group: Group) -> Group:
        for n in range(self.rounds):
            group = await self.link(ctx, (*key, n), group)
            if self.test(rewards(group, self.part)):
                break
        return group


def rewards(group: Group, part: str = "") -> np.ndarray:
    """[G] totals of the valid episodes, or what they were paid for one part; the total where a
    reward has no such part.
    """
    parts = ({} if e.reward is None else e.reward.parts for e in group.valid)
    return np.array([p.get(part, e.total) for p, e in zip(parts, group.valid, strict=True)])


def none_right(values: np.ndarray) -> bool:
    """Whether no reward is that of a right answer."""
    return not np.any(values >= SOLVED_TOTAL)
