"""EGSW: weights by softmax of advantage and entropy, by sequence and by token."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from palaestra.errors import UserError
from palaestra.explanation.method import explain
from palaestra.recipes.base import grpo
from palaestra.recipes.objectives import egsw

from tests.recipes.objectives.helpers import advantages, group


def softmax_weights(A, H, alpha, P):
    from palaestra.recipes.objectives.egsw import relative_softmax

    score = np.array(A) + alpha * np.array(H)
    return relative_softmax(score / P, np.zeros(len(A), int)) / len(A)


def test_egsw_weights():
    A, H = [1, -1, 0], [0.5, 0.5, 1.0]
    assert softmax_weights(A, H, 0.5, 1) == pytest.approx([0.622006, 0.084179, 0.293815], abs=1e-6)
    assert softmax_weights(A, H, 0.5, 2) == pytest.approx([0.486578, 0.179002, 0.334420], abs=1e-6)
    assert softmax_weights(A, H, 0.0, 1) == pytest.approx([0.665241, 0.090031, 0.244728], abs=1e-6)
    raw = np.exp(np.array(A) + 0.5 * np.array(H))
    assert raw == pytest.approx([3.490343, 0.472367, 1.648721], abs=1e-6)


def test_egsw_multiplies_the_advantage():
    """Rewards 1, -1, 0 have mean 0 and std 1: A is the reward; G w A = 3 * .622006, -3 * .084179, 0."""
    found = advantages(egsw.build(alpha=0.5), group([1, -1, 0], entropy=[0.5, 0.5, 1.0]))
    assert found == pytest.approx([3 * 0.622006, -3 * 0.084179, 0], abs=1e-5)


def test_egsw_uses_the_mean_entropy_of_a_sequence():
    rows = [
        {"reward": 1, "entropy": [0.2, 0.8]},
        {"reward": -1, "entropy": [0.5]},
        {"reward": 0, "entropy": [2.0, 0, 1]},
    ]
    assert advantages(egsw.build(alpha=0.5), rows) == pytest.approx([1.866018, -0.252537, 0], abs=1e-5)


def test_egsw_token_by_token_compares_those_still_running():
    """Position 0 has three answers, position 1 two; the last one has the position for itself: weight 1."""
    rows = [
        {"reward": 1, "entropy": [0.5, 0.0, 9.0]},
        {"reward": -1, "entropy": [0.5, 0.0]},
        {"reward": 0, "entropy": [1.0]},
    ]
    found = advantages(egsw.build(alpha=0.5, level="token"), rows)
    two = 2 / (1 + math.exp(-2))
    assert found[0] == pytest.approx([3 * 0.622006, two, 1.0], abs=1e-5)
    assert found[1] == pytest.approx([-3 * 0.084179, -(2 - two)], abs=1e-5)


@given(st.floats(-5, 5), st.floats(0, 5), st.floats(0.1, 10))
def test_egsw_equal_scores_are_grpo(a, h, P):
    assert softmax_weights([a] * 5, [h] * 5, 0.3, P) == pytest.approx([0.2] * 5)


def test_egsw_edges():
    with pytest.raises(UserError, match="'entropy'"):
        explain(egsw.build(), [group([1, 0])])
    assert advantages(egsw.build(alpha=0.0), group([1, 1])) == [0, 0]
    assert advantages(egsw.build(), group([1.0], entropy=[0.7])) == [0.0]
    huge = advantages(egsw.build(temperature=1e-4), group([1, 0], entropy=[0.1, 0.2]))
    assert np.isfinite(huge).all() and huge[1] == pytest.approx(0.0)
    flat = advantages(egsw.build(temperature=1e9), group([1, 0], entropy=[0.1, 5.0]))
    assert flat == pytest.approx(advantages(grpo.build(), group([1, 0])), abs=1e-6)
    masked = group([1, 0], entropy=[0.1, 0.2], ref_logp=[-1.0, -1.0])
    assert explain(egsw.build(kl=0.1), [masked])
