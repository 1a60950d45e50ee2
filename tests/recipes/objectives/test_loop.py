"""LOOP: leave-one-out advantages, ratios of a turn and of a sequence, and its bounds."""

import asyncio

import numpy as np
import pytest
from palaestra.explanation.method import explain
from palaestra.objective.policy import Clipped
from palaestra.recipes.base import grpo, rloo
from palaestra.recipes.objectives import loop
from palaestra.types import Episode, Group, Reward, Task
from palaestra.values import vary

from tests.recipes.objectives.helpers import advantages, near, scored


def ratios(level, logp, advantage, eps=0.1):
    """Token weights of one row of one turn whose behaviour log-probs are 0."""
    found = explain(
        replace_credit(loop.build(level, eps=eps), advantage),
        [[{"reward": 1, "logp": logp, "behaviour_logp": [0.0] * len(logp)}]],
    )
    return found["token_weights"][0][0]


def replace_credit(recipe, advantage):
    from palaestra.credit.links import Shift, chain

    return vary(recipe, credit=chain(Shift(advantage - 1)))


def test_loop_advantages():
    assert advantages(loop.build(), *scored(1, 0, 0, 0.5)) == near([0.833333, -0.5, -0.5, 0.166667])
    assert advantages(grpo.build(), *scored(1, 0, 0, 0.5)) == near([1.305582, -0.783349, -0.783349, 0.261116])
    assert advantages(loop.build(), *scored(1)) == [0.0]


def test_loop_bounds():
    clip = loop.build().learners["policy"].objective
    assert isinstance(clip, Clipped) and (1 - clip.low, 1 + clip.high) == near((0.909091, 1.1), 1e-6)


@pytest.mark.parametrize(("ratio", "advantage"), [(1.06, 1.0), (0.95, -1.0)])
def test_loop_clips_the_product_before_the_token(ratio, advantage):
    """1.06^2 = 1.1236 > 1.1, and .95^2 = .9025 < .909091: the trajectory is clipped, its tokens are not."""
    logp = [float(np.log(ratio))] * 2
    assert ratios("token", logp, advantage) == near([advantage * ratio / 2] * 2)
    assert ratios("sequence", logp, advantage) == [0.0, 0.0]
    assert ratios("turn", logp, advantage) == [0.0, 0.0]


def test_loop_turn_ratios_stop_at_the_turn():
    t = {"reward": 1, "turn_lengths": [1, 1], "logp": [float(np.log(1.06))] * 2, "behaviour_logp": [0.0, 0.0]}
    assert explain(replace_credit(loop.build("turn"), 1.0), [[t]])["token_weights"][0][0] == near([0.53, 0.53])


def test_loop_drops_what_has_no_advantage():
    def group(*rewards):
        return Group(task=Task(id="t"), episodes=tuple(Episode(reward=Reward(total=r)) for r in rewards))

    muted = lambda *r: [e.muted for e in asyncio.run(loop.MuteSmall()(None, (), group(*r))).episodes]
    assert muted(1, 1) == [True, True] and muted(1) == [True]
    assert muted(1, 0.5, 0) == [False, True, False]
    assert advantages(rloo.build(), *scored(1, 0.5, 0)) == near([0.75, 0, -0.75])


def test_loop_baselines():
    four = scored(1, 0, 0, 0.5)
    assert advantages(loop.build(), *four) == near([0.833333, -0.5, -0.5, 0.166667])
    assert advantages(loop.build(baseline="mean"), *four) == near([0.625, -0.375, -0.375, 0.125])
    assert advantages(loop.build(baseline="std"), *four) == near([1.305582, -0.783349, -0.783349, 0.261116])
