"""Where trained tokens lie, over rows and episodes of different lengths."""

import ast
import re
from pathlib import Path

import numpy as np
import palaestra as pl
from palaestra.credit.table import Table, Values
from palaestra.types import Episode, Group, Reward, Row, Segment, Task


def episode(*rows):
    return Episode(rows=tuple(Row(segments=tuple(r)) for r in rows), reward=Reward(total=1.0), status="finished")


def said(n, turn=0):
    return Segment(ids=tuple(range(n)), trained=True, turn=turn, policy="policy", logp=(0.0,) * n)


def heard(n, **more):
    return Segment(ids=tuple(range(n)), **more)


def table(*episodes):
    task = Task(id="t", prompt=(), answer="")
    return Table([Group(task=task, episodes=tuple(episodes))], None, {})


def test_places_of_tokens():
    """The first token of a row has no log-prob; hidden tokens have no place."""
    every = table(
        episode([heard(2), said(2), heard(1, turn=1), said(1, turn=1)]),
        episode([heard(3)], [said(3)], [heard(1), heard(4, hidden=True), said(1, turn=2)]),
    )
    at = every.tokens
    found = np.stack([at.episode_N, at.row_N, at.turn_N, at.position_N], 1).tolist()
    assert found == [[0, 0, 0, 2], [0, 0, 0, 3], [0, 0, 1, 5], [1, 1, 0, 1], [1, 1, 0, 2], [1, 2, 2, 1]]
    assert every.lengths_E.tolist() == [3, 3]


def test_no_token_at_all():
    for episodes in ((), (episode([heard(2)]),), (episode(),)):
        none = table(*episodes).tokens
        assert [len(x) for x in (none.episode_N, none.row_N, none.turn_N, none.position_N)] == [0] * 4


def test_links_write_into_the_table_by_its_calls_alone():
    """So that a reader who looks for what a link leaves beside its values looks for `mute`, `add_column`, `track`,
    `remember`.
    """
    package, wrote = Path(pl.__file__).parent, []
    for file in package.rglob("*.py"):
        for n in ast.walk(ast.parse(file.read_text())):
            targets = n.targets if isinstance(n, ast.Assign) else [n.target] if isinstance(n, ast.AugAssign) else []
            written = (ast.unparse(t) for t in targets if not isinstance(t, ast.Name))
            wrote += [
                f"{file.name}: {t}" for t in written if re.match(r"table\.(columns|episodes|state|signals|groups)", t)
            ]
    assert wrote == []


def test_what_a_link_leaves():
    two = table(episode([said(2)]), episode([said(2)]))
    two.mute(1)
    two.add_column("mark", Values(level="episode", x_N=np.array([1.0, 0.0])))
    two.track("share", Values(level="episode", x_N=np.array([1.0, 0.0])))
    two.remember("mean", 0.5)
    assert [e.muted for e in two.episodes] == [False, True]
    assert list(two.columns) == ["mark", "track:share"] and two.state == {"mean": 0.5}


def test_a_number_of_the_task_becomes_a_column_of_its_answers():
    numbers = ({"made": True}, {"made": 0.5}, {})
    tasks = [Task(id=str(k), prompt=(), answer="", meta=meta) for k, meta in enumerate(numbers)]
    three = Table([Group(task=t, episodes=(episode([said(2)]),)) for t in tasks], None, {})
    values = Values(level="episode", x_N=np.arange(3.0))
    assert pl.credit.TaskColumn("made")(values, three) is values
    assert three.columns["made"].x_N.tolist() == [1.0, 0.5, 0.0]
