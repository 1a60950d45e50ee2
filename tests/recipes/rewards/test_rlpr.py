"""RLPR: the probability of the reference answer, its forms, and the filter by spread."""

from dataclasses import replace

import numpy as np
import pytest
from palaestra.explanation.method import explain
from palaestra.recipes.rewards import rlpr
from palaestra.rewards.intrinsic import answer_score
from palaestra.run.driver import prepare
from palaestra.tasks.oracle import episode_saying

from tests.recipes.helpers import played
from tests.recipes.rewards.helpers import attempts, reward_of, run


def test_rlpr_rewards_of_the_catalogue():
    reward = replace(reward_of(rlpr.build()), format=rlpr.states_answer_once)
    good, bad, loop = episode_saying("3+4=7\n= 7"), episode_saying("= 7\n= 7"), episode_saying("go on " * 40 + "\n= 7")
    r = answer_score(np.log([0.9, 0.8, 0.1]))
    assert reward._reward(good, r, 0.35).total == pytest.approx(0.325)
    assert reward._reward(bad, r, 0.35).total == pytest.approx(0.225)
    assert reward._reward(good, r, 0.7).total == pytest.approx(0.1)
    assert reward._reward(loop, r, 0.35).total == pytest.approx(-0.675)
    for how, value in (("mean", 0.567), ("product", 0.00072), ("geometric", 0.089628)):
        assert answer_score(np.log([0.9, 0.8, 0.001]), how) == pytest.approx(value, rel=1e-4)
    assert answer_score(np.zeros(0)) == 0


def test_rlpr_formats():
    assert (
        rlpr.states_answer_once("a\n= 7") == 1
        and rlpr.states_answer_once("= 7\nso") == 0
        and rlpr.states_answer_once("") == 0
    )
    assert rlpr.text_before_answer("<think>a</think><answer>7</answer>") == "<think>a</think><answer>"
    assert rlpr.text_before_answer("7") is None
    assert rlpr.tags("<think>a</think><answer>7</answer>") == 1
    assert rlpr.tags("<think>a<think></think><answer>7</answer>") == 0 == rlpr.tags("<answer>7</answer>")
    tagged = reward_of(rlpr.build(form="tags"))
    assert tagged.opening == "<answer>" and tagged.format is rlpr.tags


def test_rlpr_does_not_look_at_the_sampled_answer(context):
    recipe, ctx = rlpr.build(), context("count")
    prepare(recipe, ctx)
    ref = ctx.bench.tasks.task("train", 0).answer
    group = attempts(ctx, f"{ref}=9\n= {ref}", f"{ref}=9\n= 0", "nothing", "")
    right, wrong, none, empty = run(reward_of(recipe)(ctx, group))
    assert right.total == pytest.approx(wrong.total, abs=1e-5) and right.parts["answer"] > right.parts["base"]
    assert none.total == empty.total == 0 == none.parts["answer"]


def test_rlpr_threshold_of_the_catalogue():
    assert rlpr.moving_average(0.2, 0.1, 0.99) == pytest.approx(0.199)
    pool = rlpr.Spread(0.5, size=1)
    d = 0.1 / np.sqrt(2)  # rewards 0 and 2 d have the standard deviation d sqrt(2)
    low, at = played(0, 2 * d * 0.99), played(0, 2 * d)  # 0.099 and 0.1
    state = {"step": 12, "mean": 0.2}
    assert rlpr.spread(at) == pytest.approx(0.1)
    assert run(pool(None, [low], state))[0] is None  # c m = 0.1 is more than 0.099
    ready, _, after = run(pool(None, [at], state))
    assert ready == [at] and after["mean"] == pytest.approx(0.199) and 0.5 * after["mean"] == pytest.approx(0.0995)
    assert run(pool(None, [low], {"step": 10, "mean": None, "means": [0.1] * 4}))[0] == [low]


def test_rlpr_collects_from_step_six_and_filters_from_eleven():
    pool, state = rlpr.Spread(0.5, size=2), {}
    wide, flat = played(0, 1), played(1, 1)
    for now in range(1, 11):
        ready, again, state = run(pool(None, [wide, flat], state))
        assert ready == [wide, flat] and not again, now
        assert bool(state["means"]) == (6 <= now < 10)
    m = rlpr.spread(wide) / 2
    assert state["mean"] == pytest.approx(m)
    ready, _, state = run(pool(None, [wide, flat], state))
    assert ready is None and state["kept"] == [wide]
    ready, _, state = run(pool(None, [wide, played(1)], state))
    assert ready == [wide, wide] and state["kept"] == [] and state["step"] == 12
    assert state["mean"] == pytest.approx(0.99 * m + 0.01 * m)  # groups that were dropped count in the mean


def test_rlpr_advantages_are_those_of_grpo():
    found = explain(rlpr.build(), [[{"reward": r} for r in (0.325, 0.1, 0.1, 0.1)]])["advantages"][0]
    assert found == pytest.approx([1.5, -0.5, -0.5, -0.5], abs=1e-4)
    assert explain(rlpr.build(), [[{"reward": 0.3}]])["advantages"] == [[0.0]]
