"""Which domains a step drew from."""

from palaestra.run.describe import describe
from palaestra.types import Group, Task

from tests.fake import episode


def drawn(*domains):
    seen = [Group(task=Task(id=f"{d}/0", domain=d), episodes=(episode((0,), (1,), 1.0),)) for d in domains]
    return {k: v for k, v in describe(seen, seen).items() if k.startswith("drawn/")}


def test_shares_of_domains_are_said_where_there_are_several():
    assert drawn("a", "b", "a", "a") == {"drawn/a": 0.75, "drawn/b": 0.25}
    assert drawn("a", "a") == {} and drawn() == {}
