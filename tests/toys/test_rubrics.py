"""Rubrics: what a topic wants, what an answer is worth, and that the criteria say it."""

import pytest
from palaestra.errors import UserError
from palaestra.run.benches import bench_by_name
from palaestra.toys.rubrics import Rubrics, meets
from palaestra.types import rng_of


def test_the_criteria_are_the_answer():
    task = Rubrics().task("train", 3)
    assert task.meta["criteria"] == (*(f"{i}: {d}" for i, d in enumerate(task.answer, 1)), "more than 4 digits")
    assert task.meta["points"] == (1, 1, 1, 1, -4)


def test_gold_is_worth_1_and_what_is_wrong_less():
    source = Rubrics()
    for index in range(20):
        task = source.task("test", index)
        gold = source.demonstration(task, rng_of(("x", index)), "work")
        a = str(task.answer)
        other = "".join(str((int(x) + 1) % 10) for x in a)
        assert source.check(gold, task) == 1
        assert {source.check(t, task) for t in ("", "=", "= ", a, other, f"= {other}")} == {0}
        worth = [
            source.check(f"= {t}", task) for t in (a[:3] + other[3], a[:1], other[0] + a[1:], a + a, other + a, a[1:])
        ]
        assert worth[:5] == [0.75, 0.25, 0.75, 0.0, -1.0] and worth[5] < 1


def test_a_topic_always_wants_the_same_unless_it_says_nothing():
    found = {}
    for index in range(60):
        task = Rubrics().task("train", index)
        found.setdefault(task.prompt[0].content.split(",")[0], set()).add(task.answer)
    assert len(found) == 8 and all(len(v) == 1 for v in found.values()) and len(set.union(*found.values())) == 8
    assert all(Rubrics().task("test", i).answer in set.union(*found.values()) for i in range(10))
    loose = {Rubrics(topics=1, fixed=False).task("train", i).answer for i in range(20)}
    assert len(loose) == 20


def test_criteria_and_settings():
    assert meets("2: 7", "171") and not meets("2: 7", "7") and not meets("2: 7", "717")
    assert meets("more than 4 digits", "12345") and not meets("more than 4 digits", "1234")
    with pytest.raises(UserError, match="1 to 10 topics"):
        Rubrics(topics=11)
    assert bench_by_name("rubrics(topics=3)")[0].tasks.topics == 3
