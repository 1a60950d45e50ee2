"""Which domains a step drew from."""

from dataclasses import replace

import pytest
from palaestra.run.describe import describe
from palaestra.types import Group, Task

from tests.fake import episode


def drawn(*domains, whole=""):
    seen = [Group(task=Task(id=f"{d}/0", domain=d), episodes=(episode((0,), (1,), 1.0),)) for d in domains]
    return {k: v for k, v in describe(seen, seen, whole).items() if k.startswith("drawn/")}


def test_groups_that_differ_with_and_without_what_is_muted():
    """One group differs in a muted answer alone, one in answers that train, one in none."""
    made = lambda *totals: tuple(episode((0,), (1,), x) for x in totals)
    first = made(0.0, 1.0, 1.0)
    muted = (replace(first[0], muted=True), *first[1:])
    groups = [Group(task=Task(id=str(i)), episodes=e) for i, e in enumerate((muted, made(0.0, 1.0), made(1.0, 1.0)))]
    found = describe(groups, groups)
    assert found["groups_mixed"] == pytest.approx(2 / 3) and found["groups_mixed_trained"] == pytest.approx(1 / 3)


def test_shares_of_domains_are_said_where_there_are_several():
    assert drawn("a", "b", "a", "a") == {"drawn/a": 0.75, "drawn/b": 0.25}
    assert drawn("a", "a", whole="a") == {} and drawn("", "") == {} and drawn() == {}


def test_a_step_that_drew_from_one_part_alone_says_so():
    assert drawn("a", "a", whole="a+b") == {"drawn/a": 1.0}
