"""Intervals and estimators: closed forms and tables first, then what must hold for all numbers."""

import json
import math
from itertools import combinations
from statistics import NormalDist

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from palaestra import stats
from palaestra.stats import (
    Interval,
    best_at_k,
    betainc,
    bounded_interval,
    difference,
    interquartile_mean,
    interval_at_n,
    majority_at_k,
    mean_interval,
    paired_difference,
    paired_share_difference,
    pass_at_k,
    proportion,
    share_difference,
    share_of_runs,
    stratified_bootstrap,
    t_cdf,
    t_quantile,
    unbounded_interval,
)
from palaestra.types import rng_of

values = st.lists(st.floats(-1e3, 1e3), min_size=2, max_size=30)


# ---- special functions


@pytest.mark.parametrize(
    ("df", "expected"),
    [(2, 4.30265272991), (4, 2.77644510520), (9, 2.26215716280), (30, 2.04227245630), (1000, 1.96233908083)],
)
def test_t_quantiles_of_the_tables(df, expected):
    assert t_quantile(0.975, df) == pytest.approx(expected, abs=2e-10)


def test_t_in_closed_form():
    """df 1 is Cauchy: tan(pi (p - 1/2)). df 2: (2p - 1) / sqrt(2 p (1 - p)). df infinity is normal."""
    for p in (0.6, 0.9, 0.975, 0.9995):
        assert t_quantile(p, 1) == pytest.approx(math.tan(math.pi * (p - 0.5)), rel=1e-11)
        assert t_quantile(p, 2) == pytest.approx((2 * p - 1) / math.sqrt(2 * p * (1 - p)), rel=1e-11)
        assert t_quantile(p, 10**7) == pytest.approx(NormalDist().inv_cdf(p), rel=1e-6)
    assert t_quantile(0.025, 5) == -t_quantile(0.975, 5)
    assert t_cdf(0.0, 3) == pytest.approx(0.5) and t_cdf(-2.0, 3) == pytest.approx(1 - t_cdf(2.0, 3))


def test_the_incomplete_beta_function_in_closed_form():
    """I_x(1, b) = 1 - (1 - x)^b,  I_x(a, 1) = x^a,  I_x(2, 2) = 3 x^2 - 2 x^3,  I_1/2(a, a) = 1/2."""
    for x in (0.0, 0.01, 0.3, 0.77, 0.999, 1.0):
        assert betainc(1, 3.5, x) == pytest.approx(1 - (1 - x) ** 3.5, abs=1e-14)
        assert betainc(2.5, 1, x) == pytest.approx(x**2.5, abs=1e-14)
        assert betainc(2, 2, x) == pytest.approx(3 * x**2 - 2 * x**3, abs=1e-14)
    assert betainc(7.3, 7.3, 0.5) == pytest.approx(0.5)


@given(st.floats(0.1, 200), st.floats(0.1, 200), st.floats(1e-6, 1 - 1e-6))
def test_the_incomplete_beta_function_is_a_distribution(a, b, x):
    assert betainc(a, b, x) + betainc(b, a, 1 - x) == pytest.approx(1, abs=1e-9)
    assert -1e-12 <= betainc(a, b, x) <= betainc(a, b, min(1.0, x + 0.01)) + 1e-9


# ---- intervals


def test_wilson_by_hand():
    """8 of 10, z = 1.96: centre (0.8 + 0.19207) / 1.38415 = 0.71674, half 0.22658."""
    found = proportion(8, 10)
    assert (found.mean, found.n) == (0.8, 10)
    assert (found.low, found.high) == (pytest.approx(0.4901625), pytest.approx(0.9433178))
    assert proportion(0, 20).high == pytest.approx(3.8414588 / 23.8414588)  # z^2 / (n + z^2)
    assert proportion(0, 20).low == 0 and proportion(20, 20).high == 1


def test_the_t_interval_by_hand():
    """1, 2, 3: mean 2, s = 1, half = 4.30265 / sqrt(3)."""
    found = mean_interval([1, 2, 3])
    assert found.mean == 2 and found.high == pytest.approx(2 + 4.30265273 / math.sqrt(3))


def test_little_is_known_of_little():
    wide, twice = mean_interval([1, 2, 3]), mean_interval([1, 2, 3, 1, 2, 3])
    close = interval_at_n(wide, 6)  # sd 1: 2.5706 / sqrt(6); the six observations have a smaller one, sqrt(0.8)
    assert (close.mean, close.n) == (2, 6) and close.high - 2 == pytest.approx(2.57058 / math.sqrt(6), abs=1e-5)
    assert twice.high - 2 == pytest.approx((close.high - 2) * math.sqrt(0.8)) and interval_at_n(
        wide, 3
    ).low == pytest.approx(wide.low)
    assert mean_interval([3.0]) == Interval(mean=3.0, low=-math.inf, high=math.inf, n=1)
    assert proportion(0, 0).json() == {"mean": None, "low": 0.0, "high": 1.0, "n": 0}
    assert json.loads(json.dumps(mean_interval([]).json())) == {"mean": None, "low": None, "high": None, "n": 0}
    assert Interval.of(mean_interval([3.0]).json()) == mean_interval([3.0])


def test_bad_numbers_are_refused():
    for wrong in ([1.0, math.nan], [math.inf, 1.0], [[1.0, 2.0]]):
        with pytest.raises(ValueError, match="finite"):
            mean_interval(wrong)
    with pytest.raises(ValueError, match="3 successes out of 2"):
        proportion(3, 2)
    with pytest.raises(ValueError, match="paired"):
        paired_difference([1.0], [1.0, 2.0])


def test_pairs_take_out_what_both_share():
    """Differences 1, 1, 1.6: mean 1.2, s = 0.34641; the spread between the pairs plays no part."""
    found = paired_difference([0, 10, 100], [1, 11, 101.6])
    assert found.mean == pytest.approx(1.2)
    assert found.high - found.low == pytest.approx(2 * 4.30265273 * 0.34641016 / math.sqrt(3))


def test_a_paired_difference_of_shares_by_hand():
    """Of 40 problems b alone solves 10 and a alone 4. With one more of each, 11 ones, 5 minus ones and 26 noughts: mean
    1/7, mean square 16/42, so the sample variance is (16/42 - 1/49) 42/41 = 106/287 and t is of 41 degrees."""
    a = [0] * 10 + [1] * 4 + [1] * 16 + [0] * 10
    b = [1] * 10 + [0] * 4 + [1] * 16 + [0] * 10
    found = paired_share_difference(a, b)
    half = 2.0195409704 * math.sqrt(106 / 287 / 42)
    assert (found.mean, found.n) == (pytest.approx(6 / 40), 40)
    assert (found.low, found.high) == (pytest.approx(1 / 7 - half), pytest.approx(1 / 7 + half))
    # what is not paired is wider: both solve half or so, and mostly the same ones
    apart = difference(proportion(sum(a), 40), proportion(sum(b), 40))
    assert apart.high - apart.low > found.high - found.low
    same = paired_share_difference(a, a)
    assert same.mean == 0 and same.high == -same.low == pytest.approx(2.0195409704 * math.sqrt(2 / 41 / 42))
    assert paired_share_difference([1, 1], [0, 0]).low == -1.0
    with pytest.raises(ValueError, match="cannot be paired"):
        paired_share_difference([1], [1, 0])


def test_the_difference_of_two_proportions_is_newcombes():
    """Newcombe (1998), table II, example a: 56/70 - 48/80 = 0.2, method 10 gives 0.0524 to 0.3339."""
    found = difference(proportion(48, 80), proportion(56, 70))
    assert found.mean == pytest.approx(0.2)
    assert (found.low, found.high) == (pytest.approx(0.0524, abs=5e-5), pytest.approx(0.3339, abs=5e-5))


@given(st.integers(0, 60), st.integers(1, 60))
def test_wilson_stays_inside_and_mirrors(c, n):
    if c <= n:
        a, b = proportion(c, n), proportion(n - c, n)
        assert 0 <= a.low <= a.mean <= a.high <= 1
        assert a.low == pytest.approx(1 - b.high) and proportion(c, n, level=0.8).low >= a.low


@given(values, st.floats(-10, 10), st.floats(0.1, 10))
def test_the_t_interval_moves_with_its_values(x, shift, scale):
    a, b = mean_interval(x), mean_interval([scale * v + shift for v in x])
    assert a.low <= a.mean <= a.high
    for name in ("mean", "low", "high"):
        assert getattr(b, name) == pytest.approx(scale * getattr(a, name) + shift, abs=1e-6, rel=1e-6)


def share_covered(intervals, truth):
    return np.mean([i.low <= truth <= i.high for i in intervals])


def test_intervals_cover_what_they_say():
    """2,000 simulated samples: 95% to within four standard errors of a simulation, and Wilson's known unevenness."""
    rng = rng_of(("coverage",))
    means = [mean_interval(rng.normal(3.0, 2.0, 5)) for _ in range(2000)]
    assert share_covered(means, 3.0) == pytest.approx(0.95, abs=0.02)
    for p in (0.05, 0.5, 0.9):
        shares = [proportion(int(c), 40) for c in rng.binomial(40, p, 2000)]
        assert share_covered(shares, p) == pytest.approx(0.95, abs=0.035)


# ---- what has bounds


def test_a_bounded_interval_by_hand():
    """0.5, 1 with 0 and 1: mean .625, s = .478714, half = 3.182446 * .478714 / 2 = .761736."""
    found = bounded_interval([0.5, 1.0])
    assert (found.mean, found.low, found.high, found.n) == (0.75, 0.0, 1.0, 2)
    wide = bounded_interval([5.0, 10.0], 0.0, 10.0)
    assert (wide.low, wide.high) == (0.0, 10.0)
    many = bounded_interval([0.5] * 98)  # s^2 = .5 / 99, half = t_99 s / 10
    assert many.high - 0.5 == pytest.approx(1.984217 * math.sqrt(0.5 / 99) / 10, abs=1e-6)
    assert bounded_interval([]).json() == {"mean": None, "low": 0.0, "high": 1.0, "n": 0}
    for wrong in ([1.5], [-0.1], [math.nan]):
        with pytest.raises(ValueError, match=r"between 0\.0 and 1\.0"):
            bounded_interval(wrong)


def test_an_unbounded_interval_by_hand():
    """0.5, 1 with -.25 and 1.75: s^2 = (2 * .25^2 + 2) / 3, half = 3.182446 s / 2. All alike: s = scale sqrt(2 / 17)."""
    found = unbounded_interval([0.5, 1.0])
    half = 3.182446 * math.sqrt((2 * 0.25**2 + 2) / 3) / 2
    assert (found.mean, found.n) == (0.75, 2) and (found.low, found.high) == pytest.approx((0.75 - half, 0.75 + half))
    alike = unbounded_interval([3.0] * 16, 4.0)  # t_17 = 2.109816
    assert alike.high - 3.0 == pytest.approx(2.109816 * 4.0 * math.sqrt(2 / 17 / 18), abs=1e-6)
    assert unbounded_interval([]).json() == {"mean": None, "low": None, "high": None, "n": 0}


@given(st.lists(st.floats(0, 1), min_size=1, max_size=12))
def test_an_interval_of_what_has_bounds_stays_inside_and_has_a_width(x):
    found = bounded_interval(x)
    assert 0 <= found.low <= found.mean <= found.high <= 1 and found.high - found.low > 0.1


@pytest.mark.parametrize("n", [2, 3, 4, 6, 10, 30, 100])
def test_a_bounded_interval_covers_what_it_says_or_more(n):
    """Few tasks that are solved always or never, most of the time, or all alike, of 8 samples each."""
    rng = rng_of(("bounded", n))
    for a, b in ((0.2, 0.2), (4.0, 1.0), (30.0, 1.0), (1.0, 1.0)):
        chance = rng.beta(a, b, (2000, n))
        found = [bounded_interval(rng.binomial(8, p) / 8) for p in chance]
        assert share_covered(found, a / (a + b)) > 0.92, (a, b)


def test_shares_of_runs_by_hand():
    """Three runs that solved 10 of 10: the drawing of 10 problems alone makes p = 12/14 vary by
    sqrt(p (1 - p) / 14) = .093522, so half = 4.302653 * .093522 / sqrt(3)."""
    found = share_of_runs([1.0, 1.0, 1.0], 10)
    assert (found.mean, found.high, found.n) == (1.0, 1.0, 3)
    assert found.low == pytest.approx(1 - 4.30265273 * 0.0935220 / math.sqrt(3), abs=1e-6)
    far = share_of_runs([0.2, 0.5, 0.8], 1000)  # runs differ by more than that
    assert far.high == pytest.approx(min(1, mean_interval([0.2, 0.5, 0.8]).high)) and far.low == 0
    same = share_difference([1.0, 1.0, 1.0], [1.0, 1.0, 1.0], 10)
    assert same.high == -same.low == pytest.approx(4.30265273 * 0.0935220 * math.sqrt(2) / math.sqrt(3), abs=1e-6)
    assert share_difference([0.0, 0.1], [1.0, 0.9], 10).high == 1.0
    with pytest.raises(ValueError, match="paired"):
        share_difference([1.0], [1.0, 1.0], 10)


@given(st.lists(st.floats(0, 1), min_size=2, max_size=6), st.integers(1, 600))
def test_shares_of_runs_stay_shares(x, n):
    found, apart = share_of_runs(x, n), share_difference(x, x[::-1], n)
    assert 0 <= found.low <= found.mean + 1e-12 and found.mean - 1e-12 <= found.high <= 1 and found.low < found.high
    assert -1 <= apart.low < 0 < apart.high <= 1 and apart.mean == pytest.approx(0, abs=1e-12)


@given(st.lists(st.floats(-5, 5), min_size=1, max_size=7), st.integers(1, 7))
def test_the_best_of_k_is_the_mean_over_subsets(x, k):
    if k <= len(x):
        drawn = [max(some) for some in combinations(x, k)]
        assert best_at_k(x, k) == pytest.approx(float(np.mean(drawn)), abs=1e-9)
        right = [v > 0 for v in x]
        assert best_at_k([float(r) for r in right], k) == pytest.approx(pass_at_k(len(x), sum(right), k))


# ---- many tasks


def test_the_interquartile_mean_by_hand():
    assert interquartile_mean([0, 1, 2, 3, 4, 5, 6, 100]) == 3.5
    assert interquartile_mean([1, 2, 6]) == 3
    assert interquartile_mean(list(range(6))) == 2.5
    assert math.isnan(interquartile_mean([]))


def test_the_bootstrap_knows_its_strata():
    """Two constant tasks: nothing varies inside a task, so the interval is a point. Pooled, it would be wide."""
    found = stratified_bootstrap({"a": [0.0] * 5, "b": [1.0] * 5}, np.mean, key=("s",))
    assert found == Interval(mean=0.5, low=0.5, high=0.5, n=10)


def test_the_bootstrap_of_a_mean_is_nearly_normal():
    x = rng_of(("bootstrap",)).normal(size=200)
    found, half = stratified_bootstrap({"a": x}, np.mean, key=("s",)), 1.96 * x.std() / math.sqrt(200)
    assert found.mean == pytest.approx(x.mean())
    assert (found.high - found.low) / 2 == pytest.approx(half, rel=0.08)
    assert stratified_bootstrap({"a": x}, np.mean, key=("s",)) == found
    assert stratified_bootstrap({"a": x}, np.mean, key=("t",)) != found
    with pytest.raises(ValueError, match="at least one"):
        stratified_bootstrap({"a": []}, np.mean, key=("s",))


# ---- several samples


def test_pass_at_k_by_hand():
    """5 samples, 2 right, k 2: 1 - C(3,2) / C(5,2) = 0.7."""
    assert pass_at_k(5, 2, 2) == pytest.approx(0.7)
    assert pass_at_k(5, 4, 2) == 1 and pass_at_k(5, 0, 5) == 0
    assert pass_at_k(10**6, 1, 1000) == pytest.approx(1e-3)
    with pytest.raises(ValueError, match="pass@6 of 5"):
        pass_at_k(5, 2, 6)


@given(st.integers(1, 80), st.data())
def test_pass_at_k_is_one_minus_a_ratio_of_binomials(n, data):
    c, k = data.draw(st.integers(0, n)), data.draw(st.integers(1, n))
    assert pass_at_k(n, c, k) == pytest.approx(1 - math.comb(n - c, k) / math.comb(n, k), abs=1e-12)
    assert pass_at_k(n, c, 1) == pytest.approx(c / n)
    assert k == n or pass_at_k(n, c, k) <= pass_at_k(n, c, k + 1) + 1e-12


def test_majority_by_hand():
    right = [True, True, False]
    assert majority_at_k("aab", right) == 1
    assert majority_at_k("aab", right, 2) == pytest.approx(2 / 3)  # aa wins, ab and ab are ties: (1 + 1/2 + 1/2) / 3
    assert majority_at_k("aab", right, 1) == pytest.approx(2 / 3)
    assert majority_at_k("abcd", [True, False, False, False]) == pytest.approx(1 / 4)
    assert majority_at_k([None, None, None, "a"], [False, False, False, True]) == 1  # no answer is no vote
    assert majority_at_k([None, None], [False, False]) == 0


@given(st.lists(st.sampled_from(["a", "b", "c", None]), min_size=1, max_size=8), st.data())
def test_majority_is_the_mean_over_all_subsets(answers, data):
    k = data.draw(st.integers(1, len(answers)))
    right = [a == "a" for a in answers]

    def vote(subset):
        votes = [a for a in subset if a is not None]
        most = max(map(votes.count, votes), default=0)
        top = {a for a in votes if votes.count(a) == most}
        return ("a" in top) / len(top) if top else 0.0

    subsets = list(combinations(answers, k))
    assert majority_at_k(answers, right, k) == pytest.approx(sum(map(vote, subsets)) / len(subsets))


@given(st.lists(st.integers(0, 4), min_size=1, max_size=40), st.data())
def test_somebody_wins_every_vote(answers, data):
    k = data.draw(st.integers(1, len(answers)))
    wins = [majority_at_k(answers, [a == x for a in answers], k) for x in set(answers)]
    assert sum(wins) == pytest.approx(1)


def test_errors_of_means_and_correlations_of_ranks_by_hand():
    """1, 2, 3, 4: s = sqrt(5 / 3). Ranks 1, 2.5, 2.5, 4 against 4, 3, 2, 1: -4.5 / sqrt(4.5 * 5)."""
    assert stats.standard_error(np.arange(1.0, 5.0)) == pytest.approx(math.sqrt(5 / 3) / 2)
    assert stats.standard_error(np.ones(1)) == 0.0
    found = stats.rank_correlation(np.array([1.0, 7.0, 7.0, 9.0]), np.array([40.0, 30.0, 20.0, 10.0]))
    assert found == pytest.approx(-4.5 / math.sqrt(4.5 * 5))
