"""No random stream is drawn from twice: every question to an engine has a key of its own, whatever asks."""

import asyncio
from dataclasses import replace

import pytest
from palaestra.curriculum.pool import Everything
from palaestra.recipes.base import grpo
from palaestra.rollout.branch import Finished, Partial, PrefixValues, Rescue
from palaestra.rollout.collect import Sample, Score, Until, links
from palaestra.rollout.queue import Schedule
from palaestra.run.driver import prepare
from palaestra.step import gather_groups, start
from palaestra.types import Group, stage

AGAIN = Until(lambda rewards: False, links(Sample(2), Score()), rounds=2)
BRANCHES = links(Sample(6), Score(), PrefixValues(n=2), Rescue(n=2))
PARTIAL = links(Partial(n=4, cap=2), Partial(n=4, cap=2), Finished(Score()))


@pytest.fixture
def asked(context):
    """A context, and the keys that its engine is asked with."""

    def make(task):
        ctx, keys = context(task), []
        generate = ctx.engine().generate

        async def watched(prompt, sampling, key):
            keys.append(key)
            return await generate(prompt, sampling, key)

        ctx.engine().generate = watched
        return ctx, keys

    return make


@pytest.mark.parametrize(
    "collect, task",
    [(AGAIN, "compare-pairs"), (AGAIN, "hop"), (BRANCHES, "chain"), (PARTIAL, "chain"), (PARTIAL, "compare-pairs")],
    ids=lambda x: x if isinstance(x, str) else "",
)
def test_every_turn_of_every_episode_has_its_key(collect, task, asked):
    """Rounds, episodes, turns, threads that speak at once, branches."""
    ctx, keys = asked(task)
    group = asyncio.run(collect(ctx, (0,), Group(task=ctx.bench.tasks.task("train", 0))))
    assert len(set(keys)) == len(keys) > len(group.episodes) > 2


@stage
class Second(Everything):
    """Has a batch in every second round."""

    async def __call__(self, ctx, groups, state):
        odd = not state.get("odd", False)
        return (None if odd else groups), [], {"odd": odd}


def test_rounds_steps_and_groups_have_keys_of_their_own(asked):
    """Of one task, so that nothing but the key tells its groups apart."""

    def same(ctx, key, n, state):
        return [ctx.bench.tasks.task("train", 0)] * n, state

    ctx, keys = asked("chain")
    recipe = replace(
        grpo.build(), draw=same, collect=links(Sample(2), Score()), pool=Second(), schedule=Schedule(prompts=2, lag=1)
    )
    prepare(recipe, ctx)
    state = start(0)
    for n in range(2):
        asyncio.run(gather_groups(ctx.at(recipe, n), ctx, state))
        state["step"] += 1
    assert len(keys) == len(set(keys)) == 2 * 2 * (1 + 2 * 2)  # a ticket ahead, and two rounds a step


@pytest.mark.parametrize("play", [Sample(3), Partial(n=3, cap=2)], ids=["sample", "partial"])
def test_episodes_of_a_group_share_the_randomness_of_their_world(play, asked):
    """One key to begin with, and one a turn; another group's are others. Rollouts that go on are among their group."""
    ctx, _ = asked("hop")
    noted, world = [], ctx.bench.world

    class Noted:
        seats = world.seats

        def reset(self, task, key):
            noted.append((0, key))
            return world.reset(task, key)

        def step(self, state, acts, key):
            noted.append((state.turns + 1, key))
            return world.step(state, acts, key)

    ctx.bench = replace(ctx.bench, world=Noted())
    group = Group(task=ctx.bench.tasks.task("train", 1))
    more = asyncio.run(play(ctx, (0,), group))
    first = dict(noted)
    assert len(set(first.values())) == len(first) > 1 and set(noted) == set(first.items()) and len(noted) > len(first)
    noted.clear()
    asyncio.run(play(ctx, (1,), more))
    assert set(noted) == set(dict(noted).items()) and not set(dict(noted).values()) & set(first.values())
