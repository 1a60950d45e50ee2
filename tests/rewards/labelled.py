"""Answers to one sum whose rewards have parts."""

import asyncio

from palaestra.types import Episode, Group, Message, Reward, Row, Segment, Task


def said(text, reward=None, **parts):
    """A finished episode with one sampled turn."""
    ids = tuple(text.encode()) or (256,)
    mine = Segment(
        ids=ids, author="policy", policy="policy", trained=True, logp=(-1.0,) * len(ids), text=text, version=0
    )
    total = None if reward is None else Reward(total=reward, parts=parts)
    return Episode(rows=(Row(segments=(Segment(ids=(1, 2)), mine)),), reward=total, status="finished")


def group(*episodes, answer="4", meta=None, name="t/0"):
    task = Task(id=name, prompt=(Message(role="user", content="2+2 mod 10"),), answer=answer, meta=meta or {})
    return Group(task=task, episodes=episodes)


def reward_of(function, ctx, *texts, **fields):
    return asyncio.run(function(ctx, group(*(said(t) for t in texts), **fields)))
