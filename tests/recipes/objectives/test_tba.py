"""TBA: AGRO times two over beta squared, and a beta that falls."""

import pytest
from palaestra.explanation.method import explain
from palaestra.objective.residual import Balance
from palaestra.recipes.objectives import tba

from tests.objective.helpers import balance
from tests.recipes.objectives.helpers import pair


def test_tba_is_agro_times_two_over_beta_squared():
    """z = [1.8, .1], log Z = .95: L = .7225 = 8 * .0903125."""
    loss, slope, _ = balance(Balance(beta=0.5, weight="balance"), [0.2, -0.1], [0.5, -0.5])
    assert loss == pytest.approx(0.7225)
    assert slope == pytest.approx([-0.10625 * 8, 0.10625 * 8])
    found = explain(tba.build(beta=0.5, beta_end=0.5), [pair()])["token_weights"][0]
    assert found == [pytest.approx([0.85] * 2), pytest.approx([-0.85] * 2)]


def test_tba_beta_falls():
    beta = tba.build().learners["policy"].objective.beta
    assert [beta.at(i) for i in (0, 250, 500, 900)] == pytest.approx([0.012, 0.008, 0.004, 0.004])
