"""AGRO: the paper's numbers, and the unbiased variance."""

import pytest
from palaestra.explanation.method import explain
from palaestra.objective.residual import Balance
from palaestra.recipes.objectives import agro

from tests.objective.helpers import balance, column_batch, out_of
from tests.recipes.objectives.helpers import near, pair


def test_agro_reference_values():
    """d = [.9, .05], mean .475: L = .0903125, dL/dlogpi = -+.10625; on-policy adds (1/n)(d - mean)^2 / 2 = .045156."""
    loss, slope, _ = balance(Balance(beta=0.5), [0.2, -0.1], [0.5, -0.5])
    assert loss == pytest.approx(0.0903125)
    assert slope == pytest.approx([-0.10625, 0.10625])
    same, more, _ = balance(Balance(beta=0.5, on_policy=True), [0.2, -0.1], [0.5, -0.5])
    assert same == pytest.approx(loss)
    assert [b - a for a, b in zip(slope, more, strict=True)] == pytest.approx([0.045156, 0.045156], abs=1e-6)
    found = explain(agro.build(beta=0.5), [pair()])
    assert found["advantages"] == [[0.5, -0.5]]
    assert found["token_weights"][0] == [pytest.approx([0.10625] * 2), pytest.approx([-0.10625] * 2)]


def test_agro_unbiased_variance():
    """d = [.9, .05], mean .475: sum of squares .36125 over 2 n = .0903125, over 2 (n - 1) = .180625."""
    batch = column_batch(
        1, 1, advantage=[[0.5], [-0.5]], ref_logp=[[-1.0], [-1.0]], episode=[0.0, 1.0], units=["g", "g"]
    )
    out = out_of(batch, logp=[[-0.8], [-1.1]])
    loss = {u: Balance(beta=0.5, unbiased=u)(out, batch)[0].item() for u in (False, True)}
    assert loss[False] == near(0.0903125) and loss[True] == near(0.180625)
    assert agro.build(unbiased=True).learners["policy"].objective == Balance(beta=0.1, unbiased=True)
    lone = column_batch(1, advantage=[[0.0]], ref_logp=[[-1.0]], episode=[0.0])
    assert Balance(beta=0.5, unbiased=True)(out_of(lone, logp=[[-0.8]]), lone)[0].item() == 0.0
