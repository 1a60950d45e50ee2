"""Prefix trees: breaks between rows, and terms that telescope."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from palaestra.credit.table import Table
from palaestra.credit.trie import branch_terms, episode_ids, node_means, prefix_nodes, td_terms
from palaestra.types import Episode, Group, Reward, Row, Segment, Task


def test_no_token_is_a_break_between_rows():
    said = Segment(ids=(0, 5), trained=True, logp=(0.0, 0.0))
    one, two = ((Row(segments=(Segment(ids=(7,)), said)),) * n for n in (1, 2))
    group = Group(task=Task(id="t"), episodes=tuple(Episode(rows=r, reward=Reward(total=1.0)) for r in (one, two)))
    table = Table([group], [], {})
    assert [episode_ids(table, e) for e in (0, 1)] == [[-1, 7, 0, 5], [-1, 7, 0, 5, -1, 7, 0, 5]]


@given(
    st.lists(st.tuples(st.lists(st.integers(0, 2), max_size=6), st.floats(-1, 1)), min_size=1, max_size=8),
)
def test_td_terms_telescope(group):
    paths, x_S = prefix_nodes([ids for ids, _ in group]), np.array([x for _, x in group])
    leaf = node_means(paths, x_S)
    for path, td_T, branch_T in zip(paths, td_terms(paths, x_S), branch_terms(paths), strict=True):
        assert td_T.sum() == pytest.approx(leaf[path[-1]] - x_S.mean(), abs=1e-9)
        assert np.all(np.abs(td_T[~branch_T]) < 1e-9)
