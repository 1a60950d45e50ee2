"""Advantages of pass@k: the catalogue's numbers, and the mean over subsets."""

import pytest
from palaestra.credit.pass_at_k import pass_at_k_advantages

from tests.recipes.objectives.helpers import near


@pytest.mark.parametrize(
    ("n", "hits", "k", "expected"),
    [(5, 1, 2, (1.224742, -0.306186)), (10, 1, 4, (1.224742, -0.136083)), (4, 0, 2, (0, 0)), (4, 3, 2, (0, 0)),
     (4, 4, 4, (0, 0)), (2, 1, 4, (0, 0))],
)  # fmt: skip
def test_pass_at_k(n, hits, k, expected):
    found = pass_at_k_advantages(n, hits, k)
    assert found == near(expected)
    assert hits * found[0] + (n - hits) * found[1] == near(0.0)


def test_pass_at_k_is_the_mean_over_subsets():
    """n 4, c 2, k 2: five of six pairs have a hit. A hit is in three pairs, all right; a miss in three, two right."""
    rho = 5 / 6
    sigma = (rho * (1 - rho)) ** 0.5
    assert pass_at_k_advantages(4, 2, 2) == near(((1 - rho) / sigma, (2 / 3 - rho) / sigma))
