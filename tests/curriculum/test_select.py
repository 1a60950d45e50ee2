"""Selection before sampling: what scores low is never attempted."""

import asyncio
from dataclasses import replace

import numpy as np
import pytest
import torch
from palaestra.abilities import draw_numbers
from palaestra.credit.preferences import RatePrompts, prompt_row
from palaestra.curriculum.pool import Shuffled
from palaestra.curriculum.select import NearValue, Select
from palaestra.recipes.data import pcl
from palaestra.run.driver import prepare
from palaestra.step import start, step
from palaestra.types import Group, Task
from palaestra.update import pack

from tests.fake import episode


class Numbered:
    """Tasks 0, 1, 2, ..."""

    def __call__(self, ctx, key, n, state):
        at = state.get("cursor", 0)
        return [Task(id=str(i)) for i in range(at, at + n)], {"cursor": at + n}


def picks(score, n, factor, share=0.0, key=(0,)):
    tasks, state = Select(lambda ctx, tasks: np.array(score), Numbered(), factor, share)(None, key, n, {})
    assert state["cursor"] == n * factor
    return [int(t.id) for t in tasks]


def test_the_log_says_what_the_selection_gains():
    """Kept are 3 and 4, candidates have the mean 2.5; without a choice nothing is gained."""
    for factor, n, gain in ((2, 2, 1.0), (1, 4, 0.0)):
        select = Select(lambda ctx, tasks: np.array([1.0, 2.0, 3.0, 4.0]), Numbered(), factor)
        _, state = select(None, (0,), n, {})
        assert draw_numbers(select, state) == {"score_gain": gain}
    assert draw_numbers(select, {}) == {"score_gain": 0.0} and draw_numbers(Numbered(), {}) == {}


def test_pcl_of_the_catalogue():
    near = NearValue()
    V = np.array([0.05, 0.45, 0.90, 0.60])
    object.__setattr__(near, "values", lambda ctx, tasks: V)
    assert picks(near(None, ()), 2, 2) == [1, 3]
    learner = pcl.build().learners["value"]
    rewards = ((1.0, 0.0, 1.0, 0.0), (1.0, 1.0, 1.0, 0.0))  # of the two prompts: means .5 and .75
    groups = [
        Group(task=Task(id=str(i)), episodes=tuple(episode((4,), (1,), r) for r in each))
        for i, each in enumerate(rewards)
    ]
    batch = pack(learner.credit(groups, [], {})[0], "value")
    logit = torch.tensor(np.log(V[[1, 3]] / (1 - V[[1, 3]])))
    loss, _ = learner.objective({"value": batch["marker"] * logit[:, None]}, batch)
    assert float(loss) == pytest.approx(0.0125)


def test_smallest_margins_are_picked_in_any_of_three_ways():
    """SHARP = (1 + g)/|1 - g| and W-SHARP with g = e^m rank as -|m| does (arXiv:2503.22137)."""
    m = np.array([2.0, -0.1, 0.5, -0.5000001, 1.0, -3.0])
    g, p = np.exp(m), 1 / (1 + np.exp(-m))
    mu = p + (1 - p) * g
    weighted = mu / np.sqrt(p * (1 - mu) ** 2 + (1 - p) * (g - mu) ** 2)
    plain = (1 + g) / np.abs(1 - g)
    found = [picks(score, 3, 2) for score in (-np.abs(m), plain, weighted)]
    assert found == [[1, 2, 3]] * 3


def test_ties_are_broken_by_chance_and_by_the_key():
    found = {tuple(picks([0.0] * 8, 2, 4, key=(k,))) for k in range(40)}
    assert len(found) > 10 and picks([0.0] * 8, 2, 4, key=(3,)) == picks([0.0] * 8, 2, 4, key=(3,))


def test_a_share_is_taken_without_a_look():
    score = [0.0] * 12 + [9.0] * 4
    assert picks(score, 4, 4) == [12, 13, 14, 15]
    found = [sum(i < 12 for i in picks(score, 4, 4, share=0.5, key=(k,))) for k in range(30)]
    assert max(found) == 2 and np.mean(found) > 1


def test_what_is_dropped_is_never_sampled(context, small):
    """Of 8 candidates 2 are attempted, and no more is sampled than for these."""
    ctx, recipe = context(), small(pcl.build())
    prepare(recipe, ctx)
    state, metrics = asyncio.run(step(recipe, ctx, start(0)))
    assert (
        state["draw"]["cursor"] == 8
        and metrics["score_gain"] >= 0
        and metrics["groups"] == 2
        and metrics["episodes"] == 8
    )
    assert ctx.sampled_tokens == pytest.approx(metrics["length"] * 8)
    assert metrics["value/squared_error"] <= 1 and "policy/loss" in metrics


def test_the_value_is_read_where_it_was_trained(context, small):
    """What `Regression` moves is what `NearValue` reads: many steps on two prompts bring V to the means."""
    ctx, recipe = context(), small(pcl.build(), **{"value.optimiser.lr": 3e-3})
    prepare(recipe, ctx)
    tasks, _ = Shuffled()(ctx, (0,), 2, {})
    groups = asyncio.run(collect(ctx, recipe, tasks))
    (a, b), _ = RatePrompts()(groups, [], {})
    assert a.row.context()[:-1] == groups[0].episodes[0].rows[0].context()[: len(a.row.context()) - 1]
    before = NearValue().values(ctx, tasks)
    learner = recipe.learners["value"]
    goal = [0.2, 0.9]
    aims = [replace(e, columns={**e.columns, "target_total": g}) for e, g in zip((a, b), goal, strict=True)]
    for _ in range(40):
        learner.update(ctx, "value", learner, pack(aims, "value"), {})
    after = NearValue().values(ctx, tasks)
    assert np.abs(after - goal).max() < 0.1 < np.abs(before - goal).max()


async def collect(ctx, recipe, tasks):
    return [await recipe.collect(ctx, (0, i), Group(task=t)) for i, t in enumerate(tasks)]


def test_prompts_are_rated_by_the_mean_of_their_group():
    group = Group(task=Task(id="t"), episodes=tuple(episode((4, 5), (1,), r) for r in (1.0, 0.0, 0.0, 0.0)))
    (found,), _ = RatePrompts()([group, Group(task=Task(id="u"))], [], {})
    assert found.row.context() == (4, 5, 5) and found.columns["target_total"] == 0.25
    assert found.columns["marker"].tolist() == [0, 0, 1] and found.columns["trained"].tolist() == [False, False, True]
    assert prompt_row(group.episodes[0].rows[0]).context() == (4, 5)
