"""Responses as texts, byte by byte, and what a reward pays them."""

import asyncio
from contextlib import nullcontext
from types import SimpleNamespace

from palaestra.context import Bench
from palaestra.errors import Fault
from palaestra.rewards.verify import Exact, Verify
from palaestra.types import Episode, Group, Message, Reward, Row, Segment, Task


def task(answer, question="q", **meta):
    return Task(id="t/0", prompt=(Message(role="user", content=question),), answer=answer, meta=meta)


class Clients:
    """As much of a context as a judge needs."""

    def client(self, source):
        return source.open(self)


def spoken(text, total=None, policy="policy", **reward):
    """A finished episode of one prompt token and `text` byte by byte, its end token last."""
    ids = (*text.encode(), 256)
    said = Segment(
        ids=ids,
        logp=(-1.0,) * len(ids),
        author="policy",
        policy=policy,
        trained=True,
        version=0,
        text=text,
        finish="eos",
    )
    row = Row(segments=(Segment(ids=(0,)), said), seat=policy)
    return Episode(rows=(row,), status="finished", reward=None if total is None else Reward(total=total, **reward))


def decode(ids):
    return bytes(i for i in ids if i < 256).decode()


def asked(question="1+2 mod 10", answer="3", **meta):
    return Task(id="t", prompt=(Message(role="user", content=question),), answer=answer, meta=meta, domain="chain")


def exact_reward():
    return Verify(Exact())


def door(reward=None, **more):
    """As much of a context as a reward touches."""
    bench = Bench(name="b", tasks=None, world=None, reward=reward)
    ctx = SimpleNamespace(bench=bench, decode=decode, judging=nullcontext, sampling=False, seed=0, step=0, **more)
    ctx.verdicts = lambda reward, group: reward(ctx, group)
    return ctx


def paid(reward, task, *texts, ctx=None):
    group = Group(task=task, episodes=tuple(spoken(t) for t in texts))
    return list(asyncio.run(reward(ctx or door(), group)))


def totals(reward, task, *texts, ctx=None):
    return [r if isinstance(r, Fault) else r.total for r in paid(reward, task, *texts, ctx=ctx)]
