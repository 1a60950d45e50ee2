"""Reward-robust RLHF: between the nominal and the worst reward."""

import asyncio

import numpy as np
import pytest
from palaestra.errors import Fault
from palaestra.recipes.rewards import reward_robust
from palaestra.rewards.learned import Robust, robust
from palaestra.rollout.recorded import Recorded
from palaestra.run.driver import prepare
from palaestra.settings.overrides import make_smallest
from palaestra.values import override

from tests.recipes.rewards.helpers import steps
from tests.rewards.labelled import group, said


def test_reward_robust_between_nominal_and_worst():
    mean, sd = np.array([[1.0, 0.8, 1.4, 0.2, 0.9]]), np.array([[0.5, 0.1, 0.9, 0.3, 0.2]])
    assert [robust(mean, sd, w)[0] for w in (0.4, 1.0, 0.0)] == pytest.approx([0.44, 0.8, 0.2])
    assert robust(mean[:, :1], sd[:, :1], 0.4)[0] == 1.0  # one head: plain RLHF
    two = np.array([[1.0, 0.0], [0.0, 1.0]])
    assert robust(two, np.ones((2, 2)), 0.0).tolist() == [0, 0]
    assert robust(two, np.ones((2, 2)), 0.0, "batch").mean() == 0.5


def test_reward_robust_trains_both_stages_beside_the_policy(context):
    ctx, recipe = context(), override(make_smallest(reward_robust.build()), "collect.links.0.n", 8)
    found = steps(recipe, ctx, 2)
    assert {"part/nominal", "part/gold", "part/reward/prior4_sd"} <= set(found[-1])
    assert {"nominal/ranked", "reward/squared_error", "policy/loss"} <= set(found[-1])
    assert ctx.model("nominal").heads["score"].out.weight.abs().sum() > 0


@pytest.mark.filterwarnings("ignore:invalid value")
def test_reward_robust_score_that_is_not_finite_is_an_error(context):
    ctx = context()
    prepare(reward_robust.build(heads=1), ctx)
    ctx.model("reward").heads["prior0_sd"].out.bias.data.fill_(float("nan"))
    found = asyncio.run(reward_robust.build(heads=1).collect.links[1].reward(ctx, group(said("= 4"))))
    assert isinstance(found[0], Fault)


def test_reward_robust_learns_from_recorded_pairs_stage_by_stage():
    parts = reward_robust.build(heads=2, w=0.4, pairs="data").parts
    assert list(parts) == ["nominal", "ensemble", "rl"]
    assert isinstance(parts["nominal"].runnable.collect.links[0], Recorded)
    assert [list(p.runnable.learners) for p in parts.values()][:2] == [["nominal"], ["reward"]]
    assert parts["rl"].runnable.collect.links[1].reward == Robust("reward", ("prior0", "prior1"), 0.4)
    assert "reward" in parts["rl"].models and "nominal" in parts["ensemble"].models
