"""Replay: the newest of a prompt, recent or good ones, nothing older than allowed."""

import asyncio
from dataclasses import replace

import numpy as np
import pytest
from palaestra.curriculum.replay import Replay, draw_by_priority, group_by_prompt, trim_buffer
from palaestra.recipes.objectives import tba
from palaestra.rollout.queue import Schedule
from palaestra.run.driver import prepare
from palaestra.step import start, step
from palaestra.store.codec import decode, encode
from palaestra.types import Group, Task, rng_of

from tests.fake import episode


def grown(n, rewards=(0.0, 1.0)):
    return [
        Group(task=Task(id=str(i)), episodes=tuple(episode((0,), (i, k), r) for k, r in enumerate(rewards)))
        for i in range(n)
    ]


def test_replay_keeps_the_newest():
    buffer = trim_buffer([*grown(3), *grown(1), *grown(1)], prompts=2, capacity=3)
    assert [g.task.id for g in buffer] == ["2", "0", "0"]
    assert [len(g.episodes) for g in buffer] == [2, 1, 2]  # five of "0", the oldest two gone
    assert list(group_by_prompt(buffer)) == ["2", "0"]


def test_replay_takes_recent_or_good_samples(context):
    ctx = context()
    newest = asyncio.run(Replay(size=2, samples=2, recent=1.0)(ctx, grown(4), {}))[0]
    assert [g.task.id for g in newest] == ["3", "2"]
    episodes = [episode((0,), (k,), r) for k, r in enumerate([0.0, 0.0, 1.0, 0.0])]
    best = [draw_by_priority(episodes, 1, 50.0, rng_of((i,)))[0].total for i in range(50)]
    any_ = [draw_by_priority(episodes, 1, 0.0, rng_of((i,)))[0].total for i in range(400)]
    assert min(best) == 1.0 and np.mean(any_) == pytest.approx(0.25, abs=0.07)


def test_replay_waits_until_it_is_filled_and_survives_a_checkpoint(context):
    ctx, pool = context(), Replay(size=3, samples=2, fill=6, recent=0.5)
    ready, _, state = asyncio.run(pool(ctx, grown(2), {}))
    assert ready is None
    again = decode(*encode(state))
    assert again == state
    one, two = (asyncio.run(pool(ctx, grown(4)[2:], s))[0] for s in (state, again))
    assert one == two and len(one) == 3


def test_law_07_replay_gives_nothing_older_than_max_age(context, small):
    recipe = small(replace(tba.build(lag=0, recent=0.0), schedule=Schedule(prompts=2, max_age=1)))
    ctx, state = context(), start(0)
    prepare(recipe, ctx)
    for n in range(4):
        state, metrics = asyncio.run(step(recipe, ctx, state))
        ages = [n - e.oldest() for g in state["pool"]["buffer"] for e in g.episodes]
        assert max(ages) <= 1 and metrics["groups_ready"] == (2 if n == 0 else 4)
