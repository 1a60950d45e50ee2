"""RLOO: advantages and token weights by hand."""

import pytest
from palaestra.explanation.method import explain
from palaestra.recipes.base import rloo

from tests.recipes.helpers import FOUR


def test_rloo():
    """A_i = r_i - mean of the others; every token of a sequence weighs A / B."""
    found = explain(rloo.build(), FOUR)
    assert found["advantages"][0] == pytest.approx([1, -1 / 3, -1 / 3, -1 / 3])
    assert found["token_weights"][0][1] == pytest.approx([-1 / 12] * 4)
