"""Critique, then score: a reward model that first writes what it thinks of a response, and reads
its score off that.

Trained on written critiques (`Critiqued`, CritiqueNLL() + BradleyTerry()), asked with its own
(`CritiqueThenScore`), as in MM-RLHF (arXiv:2502.10391).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING

from palaestra.credit.seats import freeze_row
from palaestra.errors import Fault
from palaestra.rewards.learned import Learned
from palaestra.rollout.player import continue_row
from palaestra.types import (
    Episode,
    Group,
    Key,
    Message,
    Reward,
    Row,
    Sampling,
    Segment,
    Task,
    stage,
)

if TYPE_CHECKING:
    from palaestra.context import Context, Models

ASK = "What is right and what is wrong in this response?"


def add_request(ctx: Models, model: str, row: Row, ask: str) -> Row:
    """The row with the request for a critique."""
    closed = row.segments[-1].finish == "eos"
    pieces = ctx.engine(model).dialect.extend(
        (Message(role="user", content=ask),), first=False, closed=closed
    )
    for p in pieces:
        row = row.add(Segment(ids=p.ids, text=p.text))  # the header begins no reply of the policy
    return row


@stage
class Critiqued:
    """Adds `write(task, episode)`, a known critique, to the last row of every scored episode, by
    the author "critique".
    """

    write: Callable[[Task, Episode], str]
    model: str = "reward"
    ask: str = ASK

    async def __call__(self, ctx: Context, key: Key, group: Group) -> Group:
        return replace(
            group, episodes=tuple(self._with(ctx, group.task, e) for e in group.episodes)
        )

    def _with(self, ctx: Context, task: Task, episode: Episode) -> Episode:
        if not episode.ok or episode.reward is None:
            return episode
        dialect, text = ctx.engine(self.model).dialect, self.write(task, episode)
        ids = (*dialect.encode_text(text), dialect.end)
        row = add_request(ctx, self.model, freeze_row(episode.rows[-1]), self.ask)
        row = row.add(
            Segment(
                ids=ids, author="critique", policy=self.model, trained=True, text=text, finish="eos"
            )
        )
        return replace(episode, rows=(*episode.rows[:-1], row))


@stage
class CritiqueThenScore:
    """The model's own critique of each response, sampled, then its head's score of response and
    critique together.
    """

    model: str = "reward"
    head: str = "score"
    ask: str = ASK
    temperature: float = 0.0
    max_tokens: int = 64

    async def __call__(self, ctx: Context, group: Group) -> list[Reward | Fault]:
        critiques = await asyncio.gather(
            *(self._critique(ctx, group.task, i, e) for i, e in enumerate(group.episodes))
        )
        episodes = tuple(Episode() if isinstance(f, Fault) else f for f in critiques)
        rewards = await Learned(self.model, (self.head,))(ctx, replace(group, episodes=episodes))
        return [f if isinstance(f, Fault) else r for f, r in zip(critiques, rewards, strict=True)]

    async def _critique(self, ctx: Models, task: Task, i: int, episode: Episode) -> Episode | Fault:
        row = add_request(ctx, self.model, freeze_row(episode.rows[-1]), self.ask)
        sampling = Sampling(temperature=self.temperature, max_tokens=self.max_tokens)
        try:
            key = ("critique", ctx.seed, ctx.step, task.id, i)
            critique = await continue_row(ctx.engine(self.model), row, (), sampling, key)
        except Fault as fault:
            return fault
        return replace(
            episode,
            rows=(row.add(Segment(ids=critique.ids, author="critique", text=critique.text)),),
        )
