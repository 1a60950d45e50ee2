"""GRPO: advantages and token weights by hand, what is clipped, and what its KL term needs."""

import pytest
from palaestra.explanation.method import explain
from palaestra.recipes.base import grpo

from tests.recipes.helpers import FOUR


def test_grpo():
    """ddof 1: A = 1.5, -.5; weight A / (G |o|) = .1875 (right, 2 tokens), -.03125 (wrong, 4 tokens)."""
    found = explain(grpo.build(), FOUR)
    assert found["advantages"][0] == pytest.approx([1.5, -0.5, -0.5, -0.5], abs=1e-5)
    assert found["token_weights"][0][0] == pytest.approx([0.1875] * 2, abs=1e-6)
    assert found["token_weights"][0][3] == pytest.approx([-0.03125] * 4, abs=1e-6)


def test_grpo_edge_cases():
    """A lone sample and equal rewards carry no gradient."""
    for group in ([{"reward": 1.0}], [{"reward": 1.0}, {"reward": 1.0}]):
        found = explain(grpo.build(), [group])
        assert found["advantages"] == [[0.0] * len(group)]
        assert not any(any(w) for w in found["token_weights"][0])


def test_clipping_needs_ratios():
    """ratio e^.3 = 1.35 > 1.2: a positive advantage is clipped to weight 0, a negative one keeps A rho."""
    group = [{"reward": r, "behaviour_logp": [-1.0], "logp": [-0.7]} for r in (1.0, 0.0)]
    found = explain(grpo.build(), [group])["token_weights"][0]
    assert found[0] == [0.0]
    assert found[1] == pytest.approx([-0.7071057 * 1.3498588 / 2], abs=1e-5)


def test_kl_term_needs_the_reference():
    bare = explain(grpo.build(kl=0.1), FOUR)
    assert bare["advantages"][0] == pytest.approx([1.5, -0.5, -0.5, -0.5], abs=1e-5)
    assert bare["token_weights"] is None and "'ref_logp'" in bare["notes"][0]
    group = [{"reward": 1, "logp": [-1.0], "ref_logp": [-1.5]}, {"reward": 1, "logp": [-1.0], "ref_logp": [-1.0]}]
    found = explain(grpo.build(kl=0.1), [group])["token_weights"][0]
    assert found[0] == pytest.approx([-0.1 * (1 - 2.718281828**-0.5) / 2])  # d k3 / d logp = 1 - exp(-d)
    assert found[1] == pytest.approx([0.0])
