"""DARS: depth by more answers for hard prompts, breadth by large batches."""

import numpy as np
import palaestra as pl
import pytest
from palaestra.recipes.data import dars
from palaestra.run.describe import describe_sizes

from tests.recipes.helpers import played


@pytest.mark.parametrize(
    ("rule", "right", "more"),
    [("equal", 0, 24), ("equal", 1, 11), ("equal", 2, 3), ("equal", 3, 1), ("equal", 4, 0), ("equal", 8, 0),
     ("hard", 0, 56), ("hard", 1, 24), ("hard", 2, 8), ("hard", 3, 3), ("hard", 4, 0)],
)  # fmt: skip
def test_answers_that_are_added_for_a_prompt(rule, right, more):
    """Of eight answers so many are right: the catalogue's values."""
    count = dars.build(rule).collect.links[2].count
    assert count(np.array([1.0] * right + [0.0] * (8 - right))) == more


def test_breadth_is_a_large_batch_in_two_updates():
    """3,072 prompts a step, one update for each of two passes; depth alone keeps the parent's batch."""
    broad, deep = dars.build(breadth=True), dars.build()
    assert broad.schedule.prompts == 3072 and broad.learners["policy"].update == pl.Plain(epochs=2)
    assert deep.schedule == pl.recipe("grpo").schedule and deep.learners["policy"].update.minibatches == 4


def test_how_many_answers_hard_prompts_have_more_is_a_metric():
    assert describe_sizes([played(1, 0), played(0, 0, 0, 0, 0)]) == {"answers_spread": 3}
    assert describe_sizes([played(1, 0), played(0, 1)]) == describe_sizes([]) == {}
