"""DPO: advantages and token weights by hand."""

import pytest
from palaestra.explanation.method import explain
from palaestra.recipes.base import dpo


def test_dpo_weights_are_those_of_the_logistic_loss():
    """margin 0: d loss / d logp of every token of the chosen row = -beta / 2."""
    group = [{"reward": 1, "length": 2, "ref_logp": [-1, -1]}, {"reward": 0, "length": 3, "ref_logp": [-1, -1, -1]}]
    found = explain(dpo.build(), [group])
    assert found["advantages"] == [[1.0, -1.0]]
    assert found["token_weights"][0][0] == pytest.approx([0.05, 0.05])
    assert found["token_weights"][0][1] == pytest.approx([-0.05] * 3)
