"""Going on from a prefix of an episode: rollouts that span steps, Monte-Carlo values of prefixes,
second attempts.

A prefix is what the policy has said, as whole segments and one that breaks off. The world is played
again from its start with the same words, so any world will do whose answers depend on them alone.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from palaestra.context import Collect
from palaestra.credit.steps import pit
from palaestra.declared import declare
from palaestra.errors import UserError
from palaestra.rollout.collect import Score, attempt
from palaestra.rollout.play import play
from palaestra.rollout.player import Continued, EnginePlayer
from palaestra.rollout.steps import Step, answer_steps
from palaestra.types import (
    Episode,
    Group,
    Key,
    Origin,
    Player,
    Sampling,
    Segment,
    Task,
    stage,
    value_class,
)

if TYPE_CHECKING:
    from palaestra.context import Context


@value_class
class Prefix:
    """What was said so far, the last segment open unless its turn had ended, and the token ids of
    its row up to there.
    """

    said: tuple[Segment, ...]
    context: tuple[int, ...]


def prefix(episode: Episode, turn: int, kept: int) -> Prefix:
    """What was said before `turn`, and the first `kept` tokens of that turn."""
    segments, context = list[Segment](), tuple[int, ...]()
    for row in episode.rows:
        seen: tuple[int, ...] = ()
        for s in row.segments:
            if s.logp is None or s.turn > turn:
                seen += s.ids
                continue
            last = s.turn == turn
            broken = last and (kept < len(s.ids) or not s.finish)
            part = (
                replace(s, ids=s.ids[:kept], logp=s.logp[:kept], text="", finish="")
                if broken
                else s
            )
            segments, seen = [*segments, part], seen + part.ids
            if last:
                context = seen
                break
    return Prefix(said=tuple(segments), context=context)


async def continuation(
    ctx: Context,
    key: Key,
    task: Task,
    start: Prefix,
    sampling: Sampling,
    model: str = "policy",
    cap: int = 0,
) -> Episode:
    """An episode of `task` that begins with `start` and is sampled from there. Raises UserError if
    the world strays, or a frozen model of a cast has a seat: the policy would go on for it.
    """
    if any(s.ids and not s.policy for s in start.said):
        raise UserError("an episode in which a frozen model has a seat cannot be continued")
    cast = _cast(ctx, model, sampling, start.said, cap)
    episode = await play(
        ctx.bench.world, cast, task, key, (*key[:-1], "world"), max_turns=ctx.bench.max_turns
    )
    if episode.ok and not any(
        r.context()[: len(start.context)] == start.context for r in episode.rows
    ):
        raise UserError(
            f"the world of {ctx.bench.name!r} does not repeat itself, so no prefix of an episode "
            "can be continued"
        )
    return episode


def _cast(
    ctx: Context, model: str, sampling: Sampling, segments: tuple[Segment, ...] = (), cap: int = 0
) -> dict[str, Player]:
    return {
        seat: Continued(player=p, said=segments, cap=cap)
        if isinstance(p, EnginePlayer) and p.policy == model
        else p
        for seat, p in ctx.cast(model, sampling).items()
    }


@stage
class Partial:
    """Plays episodes at most `cap` tokens further: up to `n` of them, begun ones first gone on with
    (arXiv:2501.12599, 2.6.2).

    One with a turn that only `cap` ended has the status "running" and no reward, and goes on from
    that turn.
    """

    n: int = 8
    cap: int = 32
    temperature: float = 1.0
    model: str = "policy"

    async def __call__(self, ctx: Context, key: Key, group: Group) -> Group:
        sampling = Sampling(temperature=self.temperature, max_tokens=ctx.bench.max_tokens)
        cast = _cast(ctx, self.model, sampling, cap=self.cap)

        async def one(i: int) -> Episode:
            if i >= len(group.episodes):
                return _suspend(await attempt(ctx, cast, key, i, group))
            before = group.episodes[i]
            left = _open(before)
            if before.status != "running" or left is None:
                return before
            begun = prefix(before, left.turn, len(left.ids))
            played = await continuation(
                ctx, (*key, i), group.task, begun, sampling, self.model, self.cap
            )
            return _suspend(played)

        played = await asyncio.gather(*(one(i) for i in range(max(self.n, len(group.episodes)))))
        return replace(group, episodes=tuple(played))


def _open(e: Episode) -> Segment | None:
    """The first turn that was left open."""
    left = (s for r in e.rows for s in r.segments if s.logp is not None and not s.finish)
    return min(left, key=lambda s: s.turn, default=None)


def _suspend(e: Episode) -> Episode:
    return replace(e, status="running", reward=None) if e.ok and _open(e) else e


@stage
class Finished:
    """Runs `link` on the episodes that have ended; those still running wait."""

    link: Collect

    async def __call__(self, ctx: Context, key: Key, group: Group) -> Group:
        at = [i for i, e in enumerate(group.episodes) if e.status != "running"]
        done = await self.link(
            ctx, key, replace(group, episodes=tuple(group.episodes[i] for i in at))
        )
        by_place = dict(zip(at, done.episodes, strict=True))
        return replace(
            group, episodes=tuple(by_place.get(i, e) for i, e in enumerate(group.episodes))
        )


@declare(facts=("step_ends",))
@stage
class MarkSteps:
    """Leaves in each episode's facts `step_ends` = ((row, token), ...) of its steps, lines of what
    the policy said, or of recorded answers.
    """

    async def __call__(self, ctx: Context, key: Key, group: Group) -> Group:
        def marked(e: Episode) -> Episode:
            ends = tuple((s.row, s.token) for s in answer_steps(e, ctx.decode, recorded=True))
            return replace(e, facts={**e.facts, "step_ends": ends})

        return replace(group, episodes=tuple(marked(e) if e.ok else e for e in group.episodes))


@declare(facts=("prefix_values", "step_ends"))
@stage
class PrefixValues:
    """The chance of success from every step's end, by `n` continuations of `model` (Math-Shepherd,
    arXiv:2312.08935).

    Leaves in each scored episode's facts `prefix_values` = (V(s_0), ..., V(s_H)) and `step_ends` =
    ((row, token), ...) of its H steps, lines of what the policy said. V(s_0) is the mean reward of
    the group, V(s_H) the episode's own reward: it is known. Prefixes that several episodes share
    are estimated once. `wrong_only` leaves right answers without values. Where another `model` goes
    on, V(s_0) is the mean reward of its own answers, `n` of them. With `right` each reward counts
    as 1 where it is `right` or more, and else as 0.
    """

    n: int = 4
    most: int = 16  # steps an episode; the last holds the rest
    temperature: float = 1.0
    wrong_only: bool = False
    model: str = "policy"
    right: float | None = None  # the total from which on an answer is; None = the reward says it

    async def __call__(self, ctx: Context, key: Key, group: Group) -> Group:
        chosen = [
            i
            for i, e in enumerate(group.episodes)
            if e.ok and not (self.wrong_only and e.is_right(self.right))
        ]
        cuts = {i: answer_steps(group.episodes[i], ctx.decode, self.most) for i in chosen}
        wanted = {
            p.context: p
            for i, cut in cuts.items()
            for s in cut[:-1]
            for p in [prefix(group.episodes[i], s.turn, s.kept)]
        }
        values = await asyncio.gather(
            *(self._value(ctx, (*key, n), group, p) for n, p in enumerate(wanted.values()))
        )
        known = dict(zip(wanted, values, strict=True))
        start = float(np.mean([self._worth(e) for e in group.valid])) if group.valid else 0.0
        if self.model != "policy" and chosen:
            whole = Prefix(said=(), context=())
            own = await self._value(ctx, (*key, len(wanted)), group, whole)
            start = start if isinstance(own, str) else own
        episodes = list(group.episodes)
        for i, cut in cuts.items():
            episodes[i] = self._add_values(episodes[i], cut, start, known)
        return replace(group, episodes=tuple(episodes))

    async def _value(self, ctx: Context, key: Key, group: Group, start: Prefix) -> float | str:
        """The mean reward; where all continuations failed, the status of one of them."""
        tried = await sample_continuations(
            ctx, key, group, start, self.n, self.temperature, self.model
        )
        worth = [self._worth(e) for e in tried if e.ok]
        return float(np.mean(worth)) if worth else tried[0].status

    def _worth(self, e: Episode) -> float:
        return e.total if self.right is None else float(e.is_right(self.right))

    def _add_values(
        self,
        e: Episode,
        steps: Sequence[Step],
        start: float,
        known: dict[tuple[int, ...], float | str],
    ) -> Episode:
        inner = [known[prefix(e, s.turn, s.kept).context] for s in steps[:-1]]
        broken = [v for v in inner if isinstance(v, str)]
        if broken:  # an infrastructure error is a status, never a value
            return replace(e, status=broken[0])
        values = (start, *inner, self._worth(e))
        ends = tuple((s.row, s.token) for s in steps)
        return replace(e, facts={**e.facts, "prefix_values": values, "step_ends": ends})


async def sample_continuations(
    ctx: Context,
    key: Key,
    group: Group,
    start: Prefix,
    n: int,
    temperature: float = 1.0,
    model: str = "policy",
) -> Sequence[Episode]:
    """`n` scored continuations of a prefix."""
    sampling = Sampling(temperature=temperature, max_tokens=ctx.bench.max_tokens)
    tried = await asyncio.gather(
        *(continuation(ctx, (*key, i), group.task, start, sampling, model) for i in range(n))
    )
    return (await Score()(ctx, key, Group(task=group.task, episodes=tuple(tried)))).episodes


@declare(reads=("prefix_values",))
@stage
class Rescue:
    """Tries again, up to `n` times, from before the first worst step of every wrong episode
    (`credit.steps.pit`).

    Right continuations join the group as muted episodes whose `origin` names their parent and the
    step they left at.
    """

    n: int = 4
    model: str = "policy"
    right: float | None = None

    async def __call__(self, ctx: Context, key: Key, group: Group) -> Group:
        rescued = await asyncio.gather(
            *(
                self._of(ctx, (*key, i), group, i)
                for i, e in enumerate(group.episodes)
                if "prefix_values" in e.facts
            )
        )
        return replace(group, episodes=(*group.episodes, *(e for each in rescued for e in each)))

    async def _of(self, ctx: Context, key: Key, group: Group, parent: int) -> list[Episode]:
        e = group.episodes[parent]
        at = pit(e.facts["prefix_values"])
        if e.is_right(self.right) or at == 0:
            return []
        step = answer_steps(e, ctx.decode, len(e.facts["step_ends"]))[at - 1]
        tried = await sample_continuations(
            ctx, key, group, prefix(e, step.turn, step.kept), self.n, model=self.model
        )
        right = [t for t in tried if t.ok and t.total > e.total]
        return [replace(t, muted=True, origin=Origin(parent=parent, turn=at)) for t in right[:1]]
