"""Ratings by Bradley and Terry's model: closed forms of two players, and a maximum by another way."""

import numpy as np
import pytest
from palaestra.games.ratings import SCALE, fit_ratings, ratings
from scipy.optimize import minimize


def test_two_players_have_the_log_odds_of_their_points():
    """30 of 40 points, and half a point more for each by the added draw: 400 log10(30.5 / 10.5)."""
    a, b = ratings(2, {(0, 1): [(1.5, 0.5)] * 20})
    assert a["rating"] - b["rating"] == pytest.approx(400 * np.log10(30.5 / 10.5), abs=1e-4)
    assert a["rating"] == pytest.approx(-b["rating"])


def test_it_is_the_maximum_of_the_likelihood():
    """Of three players, with the added draws, as scipy finds it."""
    points = np.array([[0, 9, 14.5], [3, 0, 8], [1.5, 4, 0]])
    met = (points + points.T > 0) * 0.5

    def loss(r):
        s = np.concatenate([r, [-r.sum()]])
        return -((points + met) * -np.logaddexp(0, s[None] - s[:, None])).sum()

    best = minimize(loss, np.zeros(2), method="BFGS", options={"gtol": 1e-9}).x
    expected = SCALE * np.array([*best, -best.sum()])
    assert fit_ratings(points[None])[0] == pytest.approx(expected, abs=1e-2)


def test_equal_players_have_an_interval_around_zero():
    one, two = ratings(2, {(0, 1): [(1.0, 0.0), (0.0, 1.0)] * 40})
    assert one["rating"] == pytest.approx(0, abs=1e-6) and one["low"] < -30 and one["high"] > 30
    assert two["low"] == pytest.approx(-one["high"])


def test_who_won_everything_has_a_finite_rating_and_an_interval():
    one, two = ratings(2, {(0, 1): [(2.0, 0.0)] * 16})
    assert one["rating"] == pytest.approx(200 * np.log10(32.5 / 0.5), abs=1e-3)
    assert one["low"] < one["rating"] - 30 and one["high"] == pytest.approx(one["rating"])
    assert two["rating"] == pytest.approx(-one["rating"])


def test_a_player_who_met_nobody_stays_at_the_mean():
    rated = ratings(3, {(0, 1): [(1.0, 0.0)] * 4})
    assert rated[2]["rating"] == pytest.approx(0, abs=1e-6)


def test_deals_that_stay_together_are_drawn_together():
    """A deal that both win once says nothing of who is stronger, so its interval is that of no spread."""
    swapped = ratings(2, {(0, 1): [(1.0, 1.0)] * 20})[0]
    apart = ratings(2, {(0, 1): [(1.0, 0.0), (0.0, 1.0)] * 20})[0]
    assert swapped["high"] - swapped["low"] == pytest.approx(0, abs=1e-6) and apart["high"] - apart["low"] > 60
