"""Algorithms for bandits: indices, posteriors and measures by hand."""

import math

import numpy as np
import pytest
from palaestra.control.bandits import (
    BanditHistory,
    bandit_algorithm,
    beta_posterior,
    exploration_bonus,
    fit_growth,
    gaussian_posterior,
    guide_values,
    is_exploring,
    least_share,
    linear_values,
    suffix_failure,
)
from palaestra.errors import UserError

# arm 0 was pulled three times with mean 2/3, arm 1 once with mean 1
SEEN = BanditHistory(n_arms=2, arms=(0, 0, 1, 0), rewards=(1.0, 0.0, 1.0, 1.0))
RNG = np.random.default_rng(0)


def test_the_index_of_ucb_has_the_values_of_the_catalogue():
    """alpha 0.5, counts 3 and 1: bonus sqrt(0.5 ln 4 / n), indices 1.147342 and 1.832555."""
    mean_K, bonus_K = guide_values(SEEN)
    assert mean_K + bonus_K == pytest.approx([1.147342, 1.832555], abs=1e-6)
    assert bonus_K == pytest.approx([math.sqrt(0.5 * math.log(4) / 3), math.sqrt(0.5 * math.log(4))])
    assert exploration_bonus(np.array([0.0, 1.0])).tolist() == [math.inf, 0.0]
    assert bandit_algorithm("ucb")(SEEN, RNG) == 1 and bandit_algorithm("ucb", 0.0)(SEEN, RNG) == 1


def test_alpha_decides_between_a_good_arm_and_an_unknown_one():
    """Means 1 (n=3) and 0.5 (n=1): the bonuses differ by sqrt(alpha ln 4) (1 - 1/sqrt 3) = 0.4976 sqrt(alpha)."""
    seen = BanditHistory(n_arms=2, arms=(0, 0, 0, 1), rewards=(1.0, 1.0, 1.0, 0.5))
    assert bandit_algorithm("ucb", 1.0)(seen, RNG) == 0 and bandit_algorithm("ucb", 1.02)(seen, RNG) == 1
    assert bandit_algorithm("greedy")(seen, RNG) == 0
    assert not is_exploring(seen, 0) and is_exploring(seen, 1)


def test_arms_that_were_never_pulled_come_first_in_order():
    seen = BanditHistory(n_arms=3, arms=(0,), rewards=(1.0,))
    assert all(bandit_algorithm(a)(seen, RNG) == 1 for a in ("ucb", "greedy", "thompson"))
    assert not is_exploring(seen, 1)
    tied = BanditHistory(n_arms=2, arms=(0, 1), rewards=(1.0, 1.0))
    assert bandit_algorithm("ucb")(tied, RNG) == 0 and not is_exploring(tied, 1)


def test_the_index_of_linucb_by_hand():
    """Arm 0 saw x = (1, 0) twice with rewards 1 and 0: A = diag(3, 1), theta = (1/3, 0). At x = (1, 1):
    value 1/3, x' A^-1 x = 1/3 + 1; the unseen arm: 0 and 2.
    """
    seen = BanditHistory(
        n_arms=2, arms=(0, 0), rewards=(1.0, 0.0), contexts=((1.0, 0.0), (1.0, 0.0)), context=(1.0, 1.0)
    )
    value_K, variance_K = linear_values(seen)
    assert value_K == pytest.approx([1 / 3, 0]) and variance_K == pytest.approx([4 / 3, 2])
    assert guide_values(seen, 0.5)[1] == pytest.approx([0.5 * math.sqrt(4 / 3), 0.5 * math.sqrt(2)])
    # 1/3 + alpha sqrt(4/3) = alpha sqrt(2) at alpha = 1.2845
    assert bandit_algorithm("ucb", 1.28)(seen, RNG) == 0 and bandit_algorithm("ucb", 1.29)(seen, RNG) == 1
    drawn = {bandit_algorithm("thompson")(seen, RNG) for _ in range(50)}
    assert drawn == {0, 1} and bandit_algorithm("greedy")(seen, RNG) == 0


def test_posteriors_by_hand():
    """Three pulls with two successes: Beta(3, 2). Prior N(0, 1), noise 1, rewards 2 and 4: N(6/3, 1/3);
    prior sd 2 and noise 0.5: precision 1/4 + 8, mean 24 / 8.25.
    """
    a, b = beta_posterior(np.array([3.0]), np.array([2.0]))
    assert (a.tolist(), b.tolist()) == ([3.0], [2.0])
    mean, spread = gaussian_posterior(np.array([2.0]), np.array([6.0]))
    assert mean == pytest.approx([2.0]) and spread**2 == pytest.approx([1 / 3])
    mean, spread = gaussian_posterior(np.array([2.0]), np.array([6.0]), noise=0.5, spread=2.0)
    assert mean == pytest.approx([24 / 8.25]) and spread**2 == pytest.approx([1 / 8.25])


def test_thompson_sampling_chooses_as_often_as_an_arm_is_best():
    """Beta(2, 1) against Beta(1, 2): P(x > y) = 5/6, for E[F_y(x)] = E[2x - x^2] = 4/3 - 1/2. Normal(0.5, 1/2)
    against Normal(-1, 1/2), rewards that are not 0 or 1: P = Phi(1.5 / 1) = 0.9332.
    """
    rng, n, thompson = np.random.default_rng(1), 4000, bandit_algorithm("thompson")
    seen = BanditHistory(n_arms=2, arms=(0, 1), rewards=(1.0, 0.0))
    assert np.mean([thompson(seen, rng) == 0 for _ in range(n)]) == pytest.approx(5 / 6, abs=0.02)
    seen = BanditHistory(n_arms=2, arms=(0, 1), rewards=(1.0, -2.0))
    assert np.mean([thompson(seen, rng) == 0 for _ in range(n)]) == pytest.approx(0.9332, abs=0.015)
    assert np.mean([bandit_algorithm("random")(seen, rng) for _ in range(n)]) == pytest.approx(0.5, abs=0.03)


def test_failures_of_exploration():
    assert suffix_failure([True, True, False, False]) and not suffix_failure([False, False, False, True])
    assert not suffix_failure([True]) and suffix_failure([True, False, False])
    assert least_share([0, 1, 0, 1], 2) == 1.0 and least_share([0, 0, 0, 1], 2) == 0.5
    assert least_share([0, 0], 3) == 0.0
    with pytest.raises(ValueError):
        suffix_failure([])


def test_the_fit_of_regret_finds_what_it_was_made_of():
    t = np.arange(1, 101)
    line = fit_growth(0.2 * t)
    assert line["linear"] == pytest.approx(0.2) and line["log"] == pytest.approx(0, abs=1e-9)
    bent = fit_growth(3 * np.log(t) ** 2 / 0.5 + 1, gap=0.5)
    assert bent["log"] == pytest.approx(3) and bent["power"] == 2 and bent["constant"] == pytest.approx(1)
    assert bent["linear"] == pytest.approx(0, abs=1e-9)
    assert fit_growth([0.0] * 10) == {"log": 0.0, "power": 0.25, "linear": 0.0, "constant": 0.0}
    with pytest.raises(ValueError):
        fit_growth([1.0], gap=0.0)


def test_another_name_is_refused():
    with pytest.raises(UserError, match="ucb, thompson, greedy, random"):
        bandit_algorithm("exp3")
