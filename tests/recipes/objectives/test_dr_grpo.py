"""Dr. GRPO: no length bias, no division by the deviation."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from palaestra.recipes.base import grpo
from palaestra.recipes.objectives import dr_grpo

from tests.recipes.objectives.helpers import advantages, group, weights


def test_dr_grpo_has_no_length_bias():
    found = weights(dr_grpo.build(length=8), group([1, 0, 0, 0], [2, 4, 4, 4]))
    assert found[0] == pytest.approx([0.0234375] * 2)
    assert found[1] == pytest.approx([-0.0078125] * 4)
    assert advantages(dr_grpo.build(), group([1, 0, 0, 0])) == pytest.approx([0.75, -0.25, -0.25, -0.25])


@given(st.lists(st.integers(1, 30), min_size=4, max_size=4))
def test_dr_grpo_weighs_a_token_the_same_at_any_length(lengths):
    found = weights(dr_grpo.build(length=8), group([1, 0, 0, 0], lengths))
    assert [w[0] for w in found] == pytest.approx([0.0234375] + [-0.0078125] * 3)
    biased = weights(grpo.build(), group([1, 0, 0, 0], lengths))
    assert [w[0] * n for w, n in zip(biased, lengths, strict=True)] == pytest.approx([0.375] + [-0.125] * 3, rel=1e-5)


def test_dr_grpo_edges():
    assert advantages(dr_grpo.build(), group([1.0])) == [0.0]
    assert advantages(dr_grpo.build(), group([1e-9, 0.0])) == pytest.approx([5e-10, -5e-10], rel=1e-6)  # no epsilon
