"""Rewards from checks: one a response, faults for broken checks, and which text is judged."""

import asyncio

import numpy as np
import pytest
from palaestra.errors import Fault, UserError
from palaestra.rewards.verify import Exact, Verify, check_for, response_text, reward_of
from palaestra.tasks.oracle import episode_saying
from palaestra.toys.chain import ArithmeticChain
from palaestra.types import Episode, Group, Message, Row, Segment, Task, stage

TASK = Task(id="t1", prompt=(Message(role="user", content="3 + 4?"),), answer=7)


def judged(check, *texts, task=TASK):
    return asyncio.run(Verify(check)(None, Group(task=task, episodes=tuple(map(episode_saying, texts)))))


def test_one_reward_for_each_episode_in_order():
    assert [r.total for r in judged(Exact(), "7", "8", "", "It is 7.")] == [1.0, 0.0, 0.0, 1.0]
    assert judged(Exact()) == []


@pytest.mark.parametrize(
    "found, total, parts",
    [
        (1, 1.0, {}),
        (True, 1.0, {}),
        (np.float32(0.5), 0.5, {}),
        (np.array(2.0), 2.0, {}),
        ({"right": 1, "short": 0.5}, 1.5, {"right": 1.0, "short": 0.5}),
        ({"right": 1, "total": -2}, -2.0, {"right": 1.0}),
        ({"total": 3}, 3.0, {}),
    ],
)
def test_what_a_check_may_give(found, total, parts):
    (reward,) = judged(lambda text, task: found, "x")
    assert reward.total == total and dict(reward.parts) == parts


@pytest.mark.parametrize(
    "found", [float("nan"), float("inf"), -np.inf, "1", None, [1], {}, {"a": float("nan")}, {"a": "b"}, 1j, np.ones(2)]
)
def test_what_it_may_not_give_is_a_fault(found):
    with pytest.raises(Fault, match=r"reward: .*gave .* on task 't1'") as fault:
        judged(lambda text, task: found, "x")
    assert fault.value.cause == "reward"
    with pytest.raises(ValueError):
        reward_of(found)


@stage
class Broken:
    error: type[Exception]

    def __call__(self, text, task):
        raise self.error("no")


def test_a_check_that_raises_is_a_fault_that_names_it():
    with pytest.raises(Fault, match="reward: Broken raised KeyError: 'no' on task 't1'"):
        judged(Broken(KeyError), "x")
    with pytest.raises(UserError, match="no"):
        judged(Broken(UserError), "x")


def test_checks_for_tasks():
    assert check_for(ArithmeticChain())("= 4", Task(id="c", answer="4")) == 1.0
    assert isinstance(check_for(object()), Exact)
    with pytest.raises(UserError, match="task 'x' has no answer to compare with"):
        judged(Exact(), "x", task=Task(id="x"))
    assert hash(Verify(Exact())) == hash(Verify(Exact())) and "Exact" in repr(Verify(Exact()))


def segment(text, turn, **more):
    return Segment(ids=(1,), text=text, turn=turn, **more)


def test_the_last_turn_of_the_policy_is_judged():
    policy = {"logp": (0.0,), "trained": True, "author": "policy"}
    row = Row(
        segments=(segment("q", 0), segment("first", 0, **policy), segment("more", 1), segment("last", 1, **policy))
    )
    other = Row(segments=(segment("by another seat", 2, logp=(0.0,), author="opponent"),))
    forced = Row(segments=(segment("<answer>", 3, author="forced"), segment("7</answer>", 3, **policy)))
    assert response_text(Episode(rows=(row,))) == "last"
    assert response_text(Episode(rows=(row, other))) == response_text(Episode(rows=(other, row))) == "last"
    assert response_text(Episode(rows=(other,))) == "by another seat"
    assert response_text(Episode(rows=(row, forced))) == "<answer>7</answer>"
    assert response_text(Episode()) == response_text(Episode(rows=(Row(segments=(segment("q", 0),)),))) == ""
