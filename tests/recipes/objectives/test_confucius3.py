"""Confucius3-Math: hardness weights, sums of tokens, the first phase, recovered samples."""

import asyncio
from dataclasses import replace

import pytest
from palaestra.curriculum.pool import Mixed
from palaestra.explanation.method import explain
from palaestra.recipes.base import grpo
from palaestra.recipes.objectives import confucius3
from palaestra.step import gather_groups, start
from palaestra.values import vary

from tests.fake import FakeContext, task
from tests.recipes.helpers import played
from tests.recipes.objectives.helpers import advantages, group, weights


def test_confucius_hardness():
    for right_as, wrong_as in ((1, -1), (1, 0)):
        found = advantages(confucius3.build(), group([right_as] + [wrong_as] * 3))
        assert found == pytest.approx([2.076, -0.692, -0.692, -0.692])
    D = [-0.256 * mu + 1.256 for mu in (-1, 0, 1)]
    assert pytest.approx([1.512, 1.256, 1.0]) == D
    hardness = confucius3.Hardness()
    assert [hardness.slope * mu + hardness.level for mu in (-1, 0, 1)] == pytest.approx(D)
    assert advantages(confucius3.build(pshw=False), group([1, 0, 0, 0])) == pytest.approx([1.5, -0.5, -0.5, -0.5])
    assert advantages(confucius3.build(), group([1, 1]), group([0])) == [[0, 0], [0]]


def test_confucius_sums_tokens():
    found = weights(confucius3.build(length=8), group([1, 0, 0, 0], [1, 2, 3, 4]))
    assert [w[0] for w in found] == pytest.approx([2.076 / 32] + [-0.692 / 32] * 3)


def test_confucius_corrects_no_age():
    """The ratio is against the policy before the update: a stale behaviour log-prob changes nothing."""
    stale = group([1, 0], behaviour_logp=[-3.0, -0.2], logp=[-1.0, -1.0])
    found = weights(confucius3.build(), stale)
    assert found[0][0] == pytest.approx(1.256 / (2 * 64)) and found[1][0] == pytest.approx(-1.256 / (2 * 64))


def test_first_phase_is_grpo_with_a_target():
    bare = explain(confucius3.build(phase=1), [group([1, 0])])
    assert bare["token_weights"] is None and "'entropy'" in bare["notes"][0]
    rows = group([1, 0], entropy=[0.3, 0.3])
    assert advantages(confucius3.build(phase=1), rows) == advantages(grpo.build(), rows)


def test_recent_samples_are_recovered():
    """Six kept groups for a batch of four: two are carried over, and come first in the next batch."""
    pool, ctx = Mixed(4), FakeContext()
    kept = [played(1, 0) for _ in range(6)]
    ready, _, state = asyncio.run(pool(ctx, [*kept, played(1, 1)], {}))
    assert ready == kept[:4] and state["waiting"] == kept[4:]
    later = [played(1, 0, 0) for _ in range(3)]
    ready, _, state = asyncio.run(pool(ctx, later, state))
    assert ready == [*kept[4:], *later[:2]] and state["waiting"] == later[2:]
    assert confucius3.build().schedule.max_age == 1 and confucius3.build(rsr=False).schedule.max_age == 0


def test_recovery_lives_for_one_step():
    """A group of the step before is trained on first; without recovery it is too old."""

    def fresh(e):
        segments = tuple(replace(s, version=1) for s in e.rows[0].segments)
        return replace(e, rows=(replace(e.rows[0], segments=segments),))

    async def collect(context, key, given):
        return replace(given, episodes=tuple(map(fresh, played(1, 0).episodes)))

    def draw(context, key, n, state):
        return [task(str(i), (0,), ()) for i in range(n)], state

    for rsr in (True, False):
        recipe = vary(confucius3.build(rsr=rsr), draw=draw, collect=collect, pool=Mixed(4))
        waiting = played(1, 0, 0)
        state = start(0) | {"step": 1, "pool": {"waiting": [waiting]}}
        ready, _ = asyncio.run(gather_groups(recipe, FakeContext(), state))
        assert (ready[0] is waiting) == rsr and len(ready) == 4
