"""Law 4: an infrastructure error is a status, never a zero reward; a wrong number of rewards raises."""

import asyncio

import pytest
from hypothesis import given
from hypothesis import strategies as st
from palaestra.context import Bench
from palaestra.credit.links import Center, Scale, chain
from palaestra.credit.table import Table, Values
from palaestra.errors import Fault, UserError
from palaestra.recipes.base import grpo
from palaestra.rollout.play import play
from palaestra.rollout.player import Script
from palaestra.run.describe import describe
from palaestra.run.driver import prepare
from palaestra.step import start, step
from palaestra.toys.chain import ArithmeticChain
from palaestra.types import Ask, Episode, Frame, Group, Message, Reward, Task, stage
from palaestra.worlds.question import Question


@stage
class Flaky:
    """A judge that is down for some tasks."""

    down: tuple[int, ...] = (0,)

    async def __call__(self, ctx, group):
        if int(group.task.id.rpartition("/")[2]) in self.down:
            raise Fault("judge", "connection refused")
        return [Reward(total=float(len(e.text) % 2)) for e in group.episodes]


def bench(reward):
    return Bench(name="chain", tasks=ArithmeticChain(), world=Question(), reward=reward, max_tokens=16)


def test_a_judge_that_is_down_leaves_no_zero(context, small):
    ctx = context(bench=bench(Flaky()))
    recipe = small(grpo.build())
    prepare(recipe, ctx)
    _, metrics = asyncio.run(step(recipe, ctx, start(0)))
    first, second = ctx.seen
    assert {e.status for e in first.episodes} == {"error:judge"} and all(e.reward is None for e in first.episodes)
    assert all(e.ok and e.reward for e in second.episodes)
    assert metrics["errors"] == 0.5
    assert metrics["reward"] == sum(e.total for e in second.episodes) / 4


def test_a_judge_that_is_always_down_ends_the_run_with_its_name(context, small):
    ctx = context(bench=bench(Flaky(down=(0, 1))))
    recipe = small(grpo.build())
    prepare(recipe, ctx)
    with pytest.raises(UserError, match="connection refused"):
        asyncio.run(step(recipe, ctx, start(0)))


@stage
class Few:
    async def __call__(self, ctx, group):
        return [Reward(total=1.0)]


def test_a_wrong_number_of_rewards_raises(context, small):
    ctx = context(bench=bench(Few()))
    recipe = small(grpo.build())
    prepare(recipe, ctx)
    with pytest.raises(UserError, match="1 values for 4 episodes"):
        asyncio.run(step(recipe, ctx, start(0)))


@given(st.lists(st.tuples(st.floats(-5, 5), st.booleans()), min_size=1, max_size=8))
def test_errors_are_in_no_statistic(rewards):
    """Advantages with errors in the group are those of the group without them."""
    with_errors = [
        Episode(status="error:x") if bad else Episode(reward=Reward(total=r), status="finished") for r, bad in rewards
    ]
    clean = tuple(e for e in with_errors if e.ok)
    for link in (Center(), Center(others=True)):
        found = [link_values(link, tuple(with_errors)), link_values(link, clean)]
        assert found[0] == found[1]
    if clean:
        assert describe([Group(task=Task(id="t"), episodes=clean)], [])["errors"] == 0


def test_the_interval_of_the_reward_is_that_of_independent_groups():
    """Eight answers to a prompt that all agree are one observation."""
    groups = [Group(task=Task(id=str(i)), episodes=(scored(float(i)),) * 8) for i in range(2)]
    found = describe(groups, groups)
    assert found["reward_high"] - found["reward"] == pytest.approx(1.96 * 0.5**0.5 / 2**0.5)


def scored(total):
    return Episode(reward=Reward(total=total), status="finished")


def link_values(link, episodes):
    table = Table([Group(task=Task(id="t"), episodes=episodes)], [], {})
    return Scale()(link(Values(level="episode", x_N=table.reward_E), table), table).x_N.tolist()


def test_a_group_of_errors_trains_nothing():
    group = Group(task=Task(id="t"), episodes=(Episode(status="error:x"),) * 3)
    assert chain(Center())([group], [], {})[0] == []


class Broken:
    seats = ("policy",)

    def reset(self, task, key):
        return Frame(state=0, asks=(Ask(seat="policy", say=(Message(role="user", content="hi"),)),))

    def step(self, state, acts, key):
        raise Fault("tool", "the search index is down")


def test_a_world_that_fails_is_a_status():
    cast = {"policy": Script(fn=lambda messages, rng: "x")}
    episode = asyncio.run(play(Broken(), cast, Task(id="t"), ("k",), ("w",)))
    assert episode.status == "error:tool" and episode.reward is None and "index is down" in episode.facts["error"]
