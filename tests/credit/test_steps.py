"""Tokens of steps over several rows."""

from palaestra.credit.steps import step_of_tokens
from palaestra.credit.table import Table
from palaestra.types import Episode, Group, Reward, Row, Segment, Task


def test_a_step_ends_with_the_token_that_is_named():
    """Two rows; the last step goes on to the end, and that of one row does not reach into the next."""
    said = lambda n: Segment(ids=(1,) * n, trained=True, logp=(0.0,) * n)
    rows = tuple(Row(segments=(Segment(ids=(0,)), said(n))) for n in (4, 3))
    ends = {"step_ends": ((0, 2), (0, 4), (1, 2))}
    e = Episode(rows=rows, reward=Reward(total=1.0), status="finished", facts=ends)
    table = Table([Group(task=Task(id="t"), episodes=(e,))], [], {})
    assert step_of_tokens(table, 0).tolist() == [0, 0, 1, 1, 2, 2, 2]
