"""Scopes by name: who is compared with whom, and what a wrong name says."""

import pytest
from palaestra.cli.main import main
from palaestra.credit.links import Center, chain
from palaestra.credit.scopes import SameState, scope_keys
from palaestra.credit.table import Table
from palaestra.errors import UserError
from palaestra.explanation.method import explain
from palaestra.recipes.base import grpo
from palaestra.types import Episode, Group, Reward, Row, Segment, Task
from palaestra.values import vary


@pytest.mark.parametrize(
    ("method", "words", "says"),
    [
        ("grpo", ["links.0.scope=gruop"], "'domain', 'state', 'stratum', 'agent'"),
        ("grpo", ["links.0.scope=state"], "level=turn"),
        ("rec", ["trust=ringe"], "trust takes one of 'all', 'one-side'"),
    ],
)
def test_mistakes(method, words, says, capsys):
    assert main(["explain", method, "--rewards", "[[1,0]]", *words]) == 2
    said = capsys.readouterr().err
    assert says in said and said.count("\n") == 1


def test_scopes_by_name():
    """Centred among equals: by the stratum of episodes, their agent, and the state that a turn starts in."""

    def centred(scope, *group, **at):
        recipe = vary(grpo.build(), credit=chain(Center(scope, **at)))
        return explain(recipe, [list(group)])["advantages"][0]

    by = lambda name, *values: [{"reward": r, name: v} for r, v in zip((1, 0, 3, 0), values, strict=True)]
    assert centred("stratum", *by("stratum", 1, 1, 2, 2)) == [0.5, -0.5, 1.5, -1.5]
    assert centred("agent", *by("agent", "a", "b", "b", "a")) == [0.5, -1.5, 1.5, -0.5]
    states = [{"reward": r, "turn_lengths": [1, 1], "states": list(s)} for r, s in ((1, "xy"), (0, "xz"), (3, "yz"))]
    # x starts turns worth 1 and 0, y 1 and 3, z 0 and 3
    assert centred("state", *states, level="turn") == [[0.5, -1.0], [-0.5, -1.5], [1.0, 1.5]]
    with pytest.raises(UserError, match="group, batch, episode, position, domain, state, stratum, agent"):
        centred("gruop", *by("stratum", 1, 1, 2, 2))


def test_the_agent_is_the_seat_where_no_fact_says_more():
    said = Segment(ids=(1,), trained=True, logp=(0.0,))
    rows = {s: Row(segments=(Segment(ids=(0,)), said), seat=s) for s in "ab"}
    episodes = (Episode(rows=(rows[s],), reward=Reward(total=r)) for s, r in (("a", 1.0), ("b", 0.0), ("a", 0.0)))
    table = Table([Group(task=Task(id="t"), episodes=tuple(episodes))], [], {})
    assert scope_keys(table, "agent").tolist() == [0, 1, 0]


def test_tasks_that_look_alike_are_not_compared():
    """Three tasks of two domains, each with two episodes of two turns that have all else in common."""
    said = [Segment(ids=(1,), trained=True, logp=(0.0,), turn=t) for t in (0, 1)]
    facts = {"agent": "a", "stratum": 1, "states": ("here", "here")}
    episode = Episode(rows=(Row(segments=(Segment(ids=(0,)), *said)),), reward=Reward(total=1.0), facts=facts)
    tasks = (Task(id=str(i), domain="sums" if i < 2 else "words") for i in range(3))
    table = Table([Group(task=t, episodes=(episode, episode)) for t in tasks], [], {})
    for scope in ("group", "agent", "stratum"):
        assert scope_keys(table, scope).tolist() == [0, 0, 1, 1, 2, 2], scope
        assert scope_keys(table, scope, "turn").tolist() == [0] * 4 + [1] * 4 + [2] * 4, scope
    assert scope_keys(table, "domain").tolist() == [0, 0, 0, 0, 1, 1]
    assert scope_keys(table, "batch").tolist() == [0] * 6 and scope_keys(table, "episode").tolist() == [
        0,
        1,
        2,
        3,
        4,
        5,
    ]
    assert scope_keys(table, "position", "turn").tolist() == [0, 1, 0, 1, 2, 3, 2, 3, 4, 5, 4, 5]
    for scope in (SameState(), SameState(similarity=0.5)):
        assert scope_keys(table, scope, "turn").tolist() == [0] * 4 + [1] * 4 + [2] * 4
