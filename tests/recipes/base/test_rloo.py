"""RLOO: advantages and token weights by hand."""

import pytest
from palaestra.errors import UserError
from palaestra.explanation.method import explain
from palaestra.recipes.base import rloo

from tests.recipes.helpers import FOUR


def test_rloo():
    """A_i = r_i - mean of the others; every token of a sequence weighs A / B."""
    found = explain(rloo.build(), FOUR)
    assert found["advantages"][0] == pytest.approx([1, -1 / 3, -1 / 3, -1 / 3])
    assert found["token_weights"][0][1] == pytest.approx([-1 / 12] * 4)


def test_the_kl_of_whole_answers_is_taken_off_the_reward():
    """Rewards 1, 0 and log ratios 0.5 * 2 tokens, 0: with kl 0.1 r = 0.9, 0, and A = 0.9, -0.9."""
    group = [
        {"reward": r, "length": 2, "behaviour_logp": [-1.0, -1.0], "ref_logp": [x, x]}
        for r, x in ((1, -1.5), (0, -1.0))
    ]
    found = explain(rloo.build(kl=0.1), [group])
    assert found["advantages"][0] == pytest.approx([0.9, -0.9])
    assert rloo.build(kl=0.1).references == {"ref": "policy"} and rloo.build().references == {}
    with pytest.raises(UserError, match="rloo: kl"):
        rloo.build(kl=-1)
