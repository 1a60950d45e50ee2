"""Prioritised draws: weights by hand, solved problems left alone, from easy to hard."""

from dataclasses import replace

import numpy as np
import pytest
from palaestra.curriculum.prioritised import Prioritised, Successes, probabilities
from palaestra.errors import UserError
from palaestra.store.codec import decode, encode
from palaestra.types import Group, Reward, Task

from tests.fake import episode


def test_prioritised_weights():
    """Solved .9, .5 and 0 of the time."""
    tried = np.array([[9, 10], [1, 2], [0, 4]])
    assert probabilities(Prioritised().weights_of(tried)) == pytest.approx([0.0625, 0.3125, 0.625])
    assert probabilities(Prioritised().weights_of(np.array([[2, 2], [4, 4]]))) == pytest.approx([0.5, 0.5])
    assert Prioritised().weights_of(np.array([[0, 0]])) == pytest.approx([1.0])


def test_middling_problems_and_new_ones_come_before_those_always_or_never_solved():
    """p (1 - p) with (solved + 1) / (tried + 2): of 1/2, 1/2, 7/8 and 1/8."""
    tried = np.array([[0, 0], [3, 6], [6, 6], [0, 6]])
    assert Prioritised(toward="middle").weights_of(tried) == pytest.approx([1 / 4, 1 / 4, 7 / 64, 7 / 64])


@pytest.mark.parametrize("wrong", [{"start": -1.0}, {"start": 1.1}, {"rise": -1}, {"problems": 0}])
def test_settings_that_open_nothing_are_refused(wrong):
    with pytest.raises(UserError, match=next(iter(wrong))):
        Prioritised(**wrong)


def test_prioritised_draw_leaves_solved_problems_alone(context):
    ctx, draw = context(), Prioritised(problems=8)
    ids = [ctx.bench.tasks.task("train", i).id for i in range(8)]
    state = {"tried": dict.fromkeys(ids[:6], (4, 4))}
    found, state = draw(ctx, (0, "a"), 2, state)
    assert {t.id for t in found} == set(ids[6:])
    found, _ = draw(ctx, (0, "b"), 5, state)  # more than are unsolved: each again
    assert len(found) == 5 and {t.id for t in found} == set(ids[6:])
    assert [t.id for t in draw(ctx, (0, "a"), 2, state)[0]] == [t.id for t in draw(ctx, (0, "a"), 2, state)[0]]


def test_curriculum_opens_from_easy_to_hard(context):
    ctx, draw = context(), Prioritised(problems=32, rise=10)
    size = lambda tasks: max(len(t.prompt[0].content) for t in tasks)
    everything = [ctx.bench.tasks.task("train", i) for i in range(32)]
    first, _ = draw(ctx, (0,), 8, {})
    assert size(first) <= sorted(len(t.prompt[0].content) for t in everything)[7]
    assert size(draw(ctx, (0,), 32, {"draws": 10})[0]) == size(everything)


def test_successes_are_counted_and_kept():
    seen = [Group(task=Task(id="a"), episodes=(episode((0,), (1,), 1.0), episode((0,), (1,), 0.0)))]
    state = Successes()(seen, {}, {"cursor": 3})
    assert Successes()(seen, {}, state) == {"cursor": 3, "tried": {"a": (2, 4)}}
    assert decode(*encode(state)) == state


def test_a_problem_is_solved_where_the_reward_says_so():
    half = episode((0,), (1,), 0.5)
    told = [replace(half, reward=Reward(total=0.5, solved=solved)) for solved in (True, False)]
    state = Successes()([Group(task=Task(id="a"), episodes=tuple(told))], {}, {})
    assert state == {"tried": {"a": (1, 2)}}
