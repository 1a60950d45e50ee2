"""RLCF: bridging scores of notes, their status, and the reward made of them."""

import asyncio

import numpy as np
import pytest
from palaestra.errors import Fault, UserError
from palaestra.recipes.rewards import rlcf
from palaestra.rewards import bridging
from palaestra.settings.overrides import make_smallest

from tests.recipes.rewards.helpers import steps
from tests.rewards.labelled import group, reward_of, said

TWO_CAMPS = (np.zeros(4), np.array([1.0, 1.0, -1.0, -1.0]), 0.5)


@pytest.mark.parametrize(
    ("ratings", "mean", "total"),
    [
        ([1, 1, 1, 1], (0.434783, 0.0), (0.481928, 0.0)),
        ([1, 1, 0, 0], (0.0, 0.485437), (0.0, 0.496278)),
        ([1, 1, 0.5, 0.5], (0.217391, 0.242718), (0.240964, 0.248139)),
    ],
)
def test_rlcf_note_of_two_camps(ratings, mean, total):
    y = np.array(ratings, float)
    assert bridging.fit_note(y, *TWO_CAMPS) == pytest.approx(mean, abs=1e-6)
    assert bridging.fit_note(y, *TWO_CAMPS, reg="sum") == pytest.approx(total, abs=1e-6)
    half = (TWO_CAMPS[0][::2], TWO_CAMPS[1][::2], 0.5)  # a cluster of two raters is two raters
    assert bridging.fit_note(y[::2], *half, times=np.array([2, 2])) == pytest.approx(mean, abs=1e-6)
    turned = (TWO_CAMPS[0], -TWO_CAMPS[1], 0.5)
    i, f = bridging.fit_note(y, *turned)
    assert (i, -f) == pytest.approx(mean, abs=1e-6)  # the sign of all factors is free


def test_rlcf_status():
    assert bridging.status(0.434783, 0.0) == "helpful" and bridging.status(0.41, 0.5) == "needs more ratings"
    assert bridging.status(0.0, 0.485437) == bridging.status(0.217391, 0.242718) == "needs more ratings"
    assert bridging.status(-0.451, 0.5) == "not helpful" and bridging.status(-0.449, 0.5) == "needs more ratings"
    assert bridging.status(-0.051, 0.0) == "not helpful" and bridging.status(-0.049, -0.0) == "needs more ratings"
    assert bridging.status(0.5, 0.0, votes=((10, 0), (4, 0))) == "helpful"
    assert bridging.status(0.5, 0.0, votes=((10, 0), (3, 0))) == "needs more ratings"
    assert bridging.status(0.5, 0.0, votes=((100, 0), (104, 100))) == "needs more ratings"  # a net ratio of 0.02
    assert bridging.status(0.1, 0.0, upper=-0.05) == "not helpful"
    assert bridging.status(0.395, 0.0, was="helpful") == "helpful" and bridging.status(0.395, 0.0) != "helpful"


def test_rlcf_fit_finds_what_camps_agree_on():
    """Notes: liked by all, by nobody, by one camp each. A rater who says the opposite of everyone is dropped."""
    rng = np.random.default_rng(0)
    kinds = np.repeat([[1.0, 1.0], [0.0, 0.0], [1.0, 0.0], [0.0, 1.0]], 6, 0).T  # [camp, note]
    y = kinds[np.repeat([0, 1], 15)]
    y[0] = 1 - y[0]
    y[1, :20] = np.nan  # too few ratings
    found = bridging.fit_twice(y, rng)
    liked, hated, plus, minus = found.i_N.reshape(4, 6).mean(1)
    assert liked > max(plus, minus) > hated and abs(plus - minus) < 0.1 and found.error < 0.05
    f = found.f_N.reshape(4, 6).mean(1)
    assert f[2] * f[3] < 0 and abs(f[2]) > 3 * abs(f[0])
    assert np.isnan(found.i_U[:2]).all() and not np.isnan(found.i_U[2:]).any()
    with pytest.raises(UserError, match="no rater has 10 ratings"):
        bridging.fit_twice(np.ones((3, 4)), rng)


def test_rlcf_missing_ratings_are_not_zeros():
    rated = np.array([1.0, np.nan, 1.0, np.nan])
    i, f = bridging.fit_note(rated, *TWO_CAMPS)
    assert i == pytest.approx(0.434783, abs=1e-6) and f == pytest.approx(0)


def test_rlcf_reward(context):
    ctx = context()
    ctx.models["reward"] = ctx.model("policy")
    for name, bias in (("plus", 40.0), ("minus", 40.0)):
        ctx.model("reward").add_head(name)
        ctx.model("reward").heads[name].out.bias.data.fill_(bias)
    reward = bridging.Bridged()
    same, _, empty = reward_of(reward, ctx, "1+1=2\n= 4", "1+1=2\n= 4", " ")
    assert same.total == pytest.approx(0.5 / 1.15) and same.parts["novelty"] == pytest.approx(0)
    assert empty.total == 0 and reward_of(reward, ctx, "1+1=2\n= 4")[0].total == pytest.approx(0.5 / 1.15 + 0.1)
    ctx.model("reward").heads["minus"].out.bias.data.fill_(-40.0)
    assert reward_of(bridging.Bridged(new=0.0), ctx, "= 4")[0].total == pytest.approx(0, abs=1e-6)
    ctx.model("reward").heads["minus"].out.bias.data.fill_(float("nan"))
    assert isinstance(reward_of(reward, ctx, "= 4")[0], Fault)
    with pytest.raises(UserError, match="at least 5 ratings"):
        bridging.Bridged(sizes=(2, 2))
    with pytest.raises(UserError, match="as many"):
        bridging.Bridged(sizes=(9,))


def test_rlcf_ratings_train_the_predictor_only(context):
    ctx = context()
    parts = rlcf.embedded().parts
    found = steps(make_smallest(parts["reward"].runnable), ctx, 2)
    assert {"part/label/plus", "part/label/minus", "squared_error"} <= {k.removeprefix("reward/") for k in found[-1]}
    assert set(parts["reward"].runnable.learners) == {"reward"} and set(parts["rl"].runnable.learners) == {"policy"}
    camps = asyncio.run(rlcf.Camps()(ctx, group(said("2+2=4\n= 4"))))[0]
    assert camps.parts["plus"] == pytest.approx((1 + 1 / 3) / 2) and camps.parts["minus"] == pytest.approx(
        (1 + 1 - 9 / 40) / 2
    )
