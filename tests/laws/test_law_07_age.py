"""Law 7: nothing older than max_age is trained on; offline data has no age."""

import asyncio
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from palaestra.curriculum.pool import Mixed
from palaestra.engines.own import OwnEngine
from palaestra.models.load import load
from palaestra.rollout.queue import Schedule, drop_old
from palaestra.step import start, step
from palaestra.types import Group, Row, Sampling, Segment

from tests.fake import episode, task
from tests.test_step_shapes import RECIPES, Cycle, world


def aged(version):
    said = Segment(ids=(1,), policy="policy", trained=True, version=version)
    return Group(
        task=task("t", (0,), (1,)), episodes=(replace(episode((0,), (1,), 1.0), rows=(Row(segments=(said,)),)),)
    )


@given(st.lists(st.none() | st.integers(0, 9), max_size=8), st.integers(0, 9))
def test_young_keeps_exactly_what_may_be_trained_on(versions, oldest):
    kept = drop_old([aged(v) for v in versions], oldest)
    found = [g.episodes[0].oldest() for g in kept]
    assert found == [v for v in versions if v is None or v >= oldest]


def test_versions_are_those_of_each_token():
    """Weights that move after three tokens and after five: the sample is as old as its first one."""

    async def run():
        engine = OwnEngine(load("tiny"))
        engine.version = 4
        sample = asyncio.ensure_future(engine.generate((5, 6, 7), Sampling(max_tokens=8, temperature=9.0), (1,)))
        for after, version in ((3, 5), (5, 6), (5, 7)):
            while engine.sampled_tokens < after:
                await asyncio.sleep(0)
            engine.forget()
            engine.version = version
        return await sample

    found = asyncio.run(run())
    assert len(found.ids) == 8, "an early end; take another key"
    said = Segment(ids=found.ids, trained=True, version=found.version, moved=found.moved)
    assert said.versions == ((3, 4), (2, 5), (3, 7))
    assert sum(n for n, _ in said.versions) == len(found.ids)
    assert replace(episode((0,), (1,), 1.0), rows=(Row(segments=(said,)),)).oldest() == 4


@pytest.mark.parametrize("lag", [0, 1, 3])
@pytest.mark.parametrize("gate", [False, True])
def test_no_step_trains_on_old_tokens(lag, gate):
    """Also with a gate that carries groups from step to step."""
    ages, ctx = [], world()

    def watch(ctx, name, learner, batch, state):
        return {"skipped": 0.0}, state

    def credit(groups, signals, state):
        ages.extend(ctx.step_number - v for g in groups for e in g.episodes if (v := e.oldest()) is not None)
        return [], state

    base = RECIPES["dr_grpo"]
    recipe = replace(
        base,
        draw=Cycle(),
        pool=Mixed(3) if gate else base.pool,
        schedule=Schedule(prompts=4, lag=lag),
        learners={"policy": replace(base.learners["policy"], credit=credit, update=watch)},
    )
    state = start(0)
    for _ in range(12):
        state, _ = asyncio.run(step(recipe, ctx, state))
    assert max(ages) == lag if not gate else max(ages) <= lag
    if lag and not gate:
        assert ages.count(lag) >= 9 * 4 * 8 / 8
