"""REINFORCE: one baseline for the batch."""

from palaestra.explanation.method import explain
from palaestra.recipes.base import reinforce


def test_reinforce_has_one_baseline_for_the_batch():
    found = explain(reinforce.build(), [[{"reward": 1}, {"reward": 1}], [{"reward": 0}, {"reward": 0}]])
    assert found["advantages"] == [[0.5, 0.5], [-0.5, -0.5]]
