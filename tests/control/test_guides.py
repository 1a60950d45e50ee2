"""Guides: what is asked, cached, counted and shuffled."""

import asyncio
import json

import numpy as np
import palaestra as pl
import pytest
from palaestra.control.guides import GuidanceCache
from palaestra.errors import Fault, UserError
from pydantic import BaseModel


class Answer(BaseModel):
    way: int


def spell(situation):
    return f"Where from {situation.tolist()}?"


def read(answer):
    return [float(answer.way), 1.0]


def answer_once(request):
    """Knows the situations that begin with 1."""
    return {"way": 7} if "[1.0" in request.messages[0].content else "I do not know"


def says(rows, guide=None, key=("k",)):
    return asyncio.run((guide or TWICE)(None, np.array(rows, float), key))


def twice(situation_NK):
    return 2 * situation_NK


TWICE = pl.control.ComputedGuide(twice)


def test_a_chat_model_is_asked_about_each_situation_and_failures_are_counted():
    guide = pl.control.ChatGuide(pl.Scripted(answer_once), spell, Answer, read, fallback=(0.0, 0.5))
    found = says([[1, 0], [2, 0]], guide)
    assert found.value_NG.tolist() == [[7.0, 1.0], [0.0, 0.5]] and found.fallbacks == 1
    strict = pl.control.ChatGuide(pl.Scripted(answer_once), spell, Answer, read)
    with pytest.raises(Fault, match="no fitting JSON in 2 replies"):
        says([[1, 0], [2, 0]], strict)


@pytest.mark.parametrize("n", [2, 3, 50])
def test_shuffled_guidance_is_that_of_others_in_the_same_run(n):
    rows = np.arange(n)[:, None] * [1.0, 10.0]
    found = says(rows, pl.control.ShuffledGuide(TWICE)).value_NG
    assert sorted(found.tolist()) == sorted((2 * rows).tolist())  # the same rows, whole
    assert not (found == 2 * rows).all(1).any()  # none has its own
    assert (found == says(rows, pl.control.ShuffledGuide(TWICE)).value_NG).all()  # by key
    assert n < 50 or (found != says(rows, pl.control.ShuffledGuide(TWICE), ("other",)).value_NG).any()


def test_one_situation_has_no_other():
    with pytest.raises(UserError, match="no other"):
        says([[1, 0]], pl.control.ShuffledGuide(TWICE))


def test_the_nearest_situation_within_the_radius_counts():
    cache = GuidanceCache(radius=1.0)
    cache.put(np.array([[0.0, 0.0], [3.0, 0.0]]), np.array([[1.0], [2.0]]))
    value, known = cache.look_up(np.array([[0.9, 0.0], [2.1, 0.0], [1.5, 0.0]]))
    assert known.tolist() == [True, True, False]
    assert value[:, 0].tolist() == [1.0, 2.0, 0.0]
    assert (cache.hits, cache.misses) == (2, 1)
    assert cache.wanting(np.array([[0.5, 0.0], [9.0, 0.0], [9.5, 0.0]])).tolist() == [[9.0, 0.0]]


def test_what_was_looked_up_longest_ago_goes_first():
    cache = GuidanceCache(capacity=2)
    place = lambda x: np.array([[float(x)]])
    for x in (1, 2):
        cache.put(place(x), place(x))
    cache.look_up(place(1))
    cache.put(place(3), place(3))
    assert cache.look_up(np.array([[1.0], [2.0], [3.0]]))[1].tolist() == [True, False, True]
    assert cache.evicted == 1 and len(cache) == 2


def test_old_guidance_is_asked_for_anew_and_holds_until_then():
    cache = GuidanceCache(refresh=2)
    one = np.array([[1.0]])
    cache.put(one, np.array([[5.0]]))
    cache.round = 1
    assert not len(cache.wanting(one))
    cache.round = 2
    assert len(cache.wanting(one)) == 1 and cache.look_up(one)[0].item() == 5.0
    cache.put(one, np.array([[6.0]]))
    assert cache.refreshed == 1 and cache.look_up(one)[0].item() == 6.0 and not len(cache.wanting(one))


def played(n=4, key=("advice",)):
    sim = pl.control.Rooms()
    return sim, pl.control.play_games(sim, pl.control.PPO().start(sim, key).act, n, key)


def test_an_advisor_asks_between_iterations_and_is_neutral_where_nothing_is_known():
    sim, paths = played()
    advisor = pl.control.Asking(most=8, every=2).start(pl.control.ComputedGuide(sim.best_ways), 4, ("a",), neutral=-1.0)
    assert (advisor(paths["obs"]) == -1.0).all()
    assert asyncio.run(advisor.ask(paths, 1))["guide/asked"] == 0  # every second iteration
    assert asyncio.run(advisor.ask(paths, 2))["guide/asked"] == 8
    said = advisor(paths["obs"])
    known = (said >= 0).all(-1)
    assert known.any() and (said[known] == sim.best_ways(paths["obs"])[known]).all()
    numbers = advisor.numbers()
    assert numbers["guide/hits"] + numbers["guide/misses"] == said[..., 0].size
    assert numbers["guide/hits"] == known.sum() and numbers["guide/fallbacks"] == 0


def test_nothing_is_asked_where_fewer_are_wanted_than_shuffling_needs():
    sim, paths = played(1)
    one = {k: v[:, :, :1] if v.ndim > 2 else v[:, :1] for k, v in paths.items()}
    advisor = pl.control.Asking().start(pl.control.ShuffledGuide(pl.control.ComputedGuide(sim.best_ways)), 4, ("a",))
    assert asyncio.run(advisor.ask(one, 1))["guide/asked"] == 0


def advise(obs):
    return np.where(pl.control.Rooms().best_ways(obs), 0.0, -4.0)


def test_an_oracle_helps_a_learner_and_a_shuffled_one_does_not():
    sim, found = pl.control.Rooms(), {}
    for name, guide in (
        ("oracle", pl.control.ComputedGuide(advise)),
        ("shuffled", pl.control.ShuffledGuide(pl.control.ComputedGuide(advise))),
    ):
        advisor = pl.control.Asking(most=128).start(guide, 4, ("advice", name))
        learner, lines = pl.control.DoubleQ(updates=16, prior=0.05), []
        asyncio.run(learner.learn(sim, 6_000, ("q",), prior=advisor, between=advisor.ask, log=lines.append))
        found[name] = np.mean([m["reward"] for m in lines[-5:]])
        assert lines[-1]["guide/asked"] > 100 and json.dumps(lines[-1])
    assert found["oracle"] > found["shuffled"] + 0.2


def test_a_budget_of_calls_is_of_the_whole_run_and_situations_may_be_others_than_observations():
    asked = []

    def count(rows):
        asked.extend(rows[:, 0].tolist())
        return rows * 2

    situations = lambda paths: paths["reward"].reshape(-1, 1)
    advisor = pl.control.Asking(most=4, calls=5).start(
        pl.control.ComputedGuide(count), 1, ("b",), situations=situations
    )
    for i in range(1, 4):
        asyncio.run(advisor.ask({"reward": np.arange(10.0).reshape(2, 1, 5)}, i))
    numbers = advisor.numbers()
    assert len(asked) == 4 and numbers["guide/asked"] == 4  # one is left, and one has no other to be shuffled with
    assert numbers["guide/left_out"] == 3 + 3
    advisor = pl.control.Asking(most=4, calls=5, fewest=1).start(
        pl.control.ComputedGuide(count), 1, ("b",), situations=situations
    )
    for i in range(1, 4):
        asyncio.run(advisor.ask({"reward": np.arange(10.0).reshape(2, 1, 5)}, i))
    assert advisor.numbers()["guide/asked"] == 5


def test_guidance_reaches_further_than_what_counts_as_asked():
    cache = GuidanceCache(radius=1.0, reach=5.0)
    cache.put(np.array([[0.0]]), np.array([[7.0]]))
    value, known = cache.look_up(np.array([[4.0], [6.0]]))
    assert known.tolist() == [True, False] and value[0, 0] == 7.0
    assert cache.wanting(np.array([[0.5], [4.0], [6.0]])).ravel().tolist() == [4.0, 6.0]


def test_an_endpoint_that_fails_is_a_fault_and_no_fallback():
    def fail(request):
        raise Fault("chat-500", "down")

    guide = pl.control.ChatGuide(pl.Scripted(fail), spell, Answer, read, fallback=(0.0, 0.5))
    with pytest.raises(Fault, match="down"):
        says([[1, 0]], guide)


def test_a_question_that_grows_beyond_the_context_is_a_failed_format_and_a_fallback():
    """The first question fits, and with the reply and what is wrong with it no more: that ends no run."""

    def answer(request):
        if len(request.messages) > 1 or "refused" in request.messages[0].content:
            raise Fault("chat-refused", "900 tokens do not fit into the 512 of m")
        return "a long reply without JSON"

    guide = pl.control.ChatGuide(pl.Scripted(answer), spell, Answer, read, fallback=(0.0, 0.5))
    found = says([[1, 0], [2, 0]], guide)
    assert found.value_NG.tolist() == [[0.0, 0.5]] * 2 and found.fallbacks == 2
    with pytest.raises(Fault, match="no fitting JSON in 1 replies: there is no JSON in it; to be asked again was refu"):
        says([[1, 0]], pl.control.ChatGuide(pl.Scripted(answer), spell, Answer, read))
    first = pl.control.ChatGuide(pl.Scripted(answer), lambda x: "refused", Answer, read, fallback=(0.0, 0.5))
    with pytest.raises(Fault, match="do not fit into the 512"):
        says([[1, 0]], first)
