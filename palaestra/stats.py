"""Estimates with their intervals. Pure functions of numbers; scipy is not needed.

Intervals are two-sided at 95% unless a level is given. What cannot be known is infinite (the
interval of one value) or NaN (the mean of none), never 0. Suffix N: values, runs or problems.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from statistics import NormalDist
from typing import Any

import numpy as np

from palaestra.types import Key, rng_of, value_class

__all__ = [
    "Interval",
    "beta_quantile",
    "bounded_interval",
    "mean_interval",
    "paired_difference",
    "paired_share_difference",
    "pass_at_k",
    "proportion",
    "rank_correlation",
    "ranks",
    "roc_auc",
    "standard_error",
    "t_quantile",
    "unbounded_interval",
]

LEVEL = 0.95
MOST_FLIPPED = 20  # differences whose subsets are all looked at

Statistic = Callable[[np.ndarray], float]


@value_class
class Interval:
    """An estimate from `n` values and the ends of its confidence interval."""

    mean: float
    low: float
    high: float
    n: int

    def json(self) -> dict[str, Any]:
        """Plain numbers; null where a number is not finite."""
        ends = {k: getattr(self, k) for k in ("mean", "low", "high")}
        return {k: v if math.isfinite(v) else None for k, v in ends.items()} | {"n": self.n}

    @classmethod
    def of(cls, record: Mapping[str, Any]) -> Interval:
        """The inverse of `json`."""
        mean, low, high = (
            default if record.get(k) is None else float(record[k])
            for k, default in (("mean", math.nan), ("low", -math.inf), ("high", math.inf))
        )
        return cls(mean=mean, low=low, high=high, n=int(record.get("n") or 0))


# ---- one sample


def proportion(successes: float, n: int, level: float = LEVEL) -> Interval:
    """Share of successes with the score interval, which keeps its coverage at 0, at 1 and for small
    n. A success may count one half, as a tie does: halves spread less than 0 and 1 of the same
    mean, so the interval then errs to the wide side.

    (p + z^2/2n +- z sqrt(p(1-p)/n + z^2/4n^2)) / (1 + z^2/n) Wilson (1927); Brown, Cai & DasGupta
    (2001), eq. 4 Of nothing, nothing is known: 0 of 0 is NaN in [0, 1].
    """
    if not 0 <= successes <= n:
        raise ValueError(f"{successes} successes out of {n}")
    if n == 0:
        return Interval(mean=math.nan, low=0.0, high=1.0, n=0)
    p, z = successes / n, NormalDist().inv_cdf((1 + level) / 2)
    centre, scale = p + z * z / (2 * n), 1 + z * z / n
    half = z * math.sqrt(p * (1 - p) / n + z * z / (4 * n * n))
    low = 0.0 if successes == 0 else (centre - half) / scale
    high = 1.0 if successes == n else (centre + half) / scale
    return Interval(mean=p, low=low, high=high, n=n)


def mean_interval(values_N: Sequence[float], level: float = LEVEL) -> Interval:
    """Mean and t interval: mean +- t_{n-1} s / sqrt(n). Student (1908). One value has a mean and no
    interval.
    """
    x_N = np.asarray(values_N, np.float64)
    if x_N.ndim != 1 or not np.isfinite(x_N).all():
        raise ValueError(f"a mean needs a list of finite numbers, not {values_N!r}")
    n = len(x_N)
    mean = float(x_N.mean()) if n else math.nan
    if n < 2:
        return Interval(mean=mean, low=-math.inf, high=math.inf, n=n)
    half = t_quantile((1 + level) / 2, n - 1) * float(x_N.std(ddof=1)) / math.sqrt(n)
    return Interval(mean=mean, low=mean - half, high=mean + half, n=n)


def bounded_interval(
    values_N: Sequence[float], low: float = 0.0, high: float = 1.0, level: float = LEVEL
) -> Interval:
    """Mean of values between two bounds, and an interval that stays between them.

    The t interval of the values and of two more, one at each bound, cut at the bounds. So it has a
    width where all values are alike, and of 0 and 1 it is close to the score interval. The same
    two more, of proportions: Agresti & Caffo (2000). Of nothing, nothing is known.

    Raises:
        ValueError: a value that is not finite or not between the bounds.
    """
    x_N = np.asarray(values_N, np.float64)
    if x_N.ndim != 1 or not ((x_N >= low) & (x_N <= high)).all():
        raise ValueError(f"values between {low} and {high}, not {values_N!r}")
    if not len(x_N):
        return Interval(mean=math.nan, low=low, high=high, n=0)
    interval = mean_interval([*x_N, low, high], level)
    return Interval(
        mean=float(x_N.mean()),
        low=max(low, interval.low),
        high=min(high, interval.high),
        n=len(x_N),
    )


def unbounded_interval(
    values_N: Sequence[float], scale: float = 1.0, level: float = LEVEL
) -> Interval:
    """Mean of values that may lie anywhere, and an interval that has a width where all are alike.

    The t interval of the values and of two more, `scale` below and above their mean. Of nothing,
    nothing is known.
    """
    if not len(values_N):
        return mean_interval(values_N, level)
    mean = float(np.mean(values_N))
    return replace(
        mean_interval([*values_N, mean - scale, mean + scale], level), mean=mean, n=len(values_N)
    )


def ratio_interval(
    sums_N: Sequence[float], counts_N: Sequence[float], level: float = LEVEL
) -> Interval:
    """sum(sums) / sum(counts), such as a mean over tokens of texts that differ in length, with the
    t interval of the linearised ratio (Cochran, 1977, eq. 6.13): +- t sd(s_i - R c_i) / (c sqrt(n)).
    """
    s_N, c_N = np.asarray(sums_N, np.float64), np.asarray(counts_N, np.float64)
    if not len(s_N) or not c_N.sum() > 0:
        return Interval(mean=math.nan, low=-math.inf, high=math.inf, n=len(s_N))
    ratio = float(s_N.sum() / c_N.sum())
    interval = mean_interval(((s_N - ratio * c_N) / c_N.mean()).tolist(), level)
    return Interval(mean=ratio, low=ratio + interval.low, high=ratio + interval.high, n=len(s_N))


def share_of_runs(shares_N: Sequence[float], n: int, level: float = LEVEL) -> Interval:
    """Mean of shares, one of each run on `n` problems, with the t interval over runs, cut at 0
    and 1.

    Runs are taken to differ by no less than the drawing of `n` problems makes them differ: three
    runs that all solved everything leave room for a share below 1.
    """
    spread = math.sqrt(_variance_of_share(shares_N, n))
    return _clip(_t_interval(shares_N, spread, level), 0.0, 1.0)


def share_difference(
    a_N: Sequence[float], b_N: Sequence[float], n: int, level: float = LEVEL
) -> Interval:
    """Mean of b - a over pairs of runs, of shares of `n` problems each, as `share_of_runs`, cut at
    -1 and 1.
    """
    if len(a_N) != len(b_N):
        raise ValueError(f"{len(a_N)} values cannot be paired with {len(b_N)}")
    spread = math.sqrt(_variance_of_share(a_N, n) + _variance_of_share(b_N, n))
    differences = [b - a for a, b in zip(a_N, b_N, strict=True)]
    return _clip(_t_interval(differences, spread, level), -1.0, 1.0)


def _variance_of_share(shares_N: Sequence[float], n: int) -> float:
    """Of a share of `n` problems, with two more solved and two more not (Agresti & Coull, 1998)."""
    p = (float(np.mean(shares_N)) * n + 2) / (n + 4)
    return p * (1 - p) / (n + 4)


def _t_interval(values_N: Sequence[float], least: float, level: float) -> Interval:
    """`mean_interval` of values whose spread is at least `least`."""
    interval = mean_interval(values_N, level)
    if interval.n < 2:
        return interval
    half = t_quantile((1 + level) / 2, interval.n - 1) * least / math.sqrt(interval.n)
    half = max(half, (interval.high - interval.low) / 2)
    return Interval(
        mean=interval.mean, low=interval.mean - half, high=interval.mean + half, n=interval.n
    )


def _clip(interval: Interval, low: float, high: float) -> Interval:
    return Interval(
        mean=interval.mean, low=max(low, interval.low), high=min(high, interval.high), n=interval.n
    )


def interval_at_n(interval: Interval, n: int, level: float = LEVEL) -> Interval:
    """The t interval that n observations of the same mean and spread would have. Of two or more
    observations.
    """
    quantile = lambda m: t_quantile((1 + level) / 2, m - 1) / math.sqrt(m)
    half = (interval.high - interval.low) / 2 * quantile(n) / quantile(interval.n)
    return Interval(mean=interval.mean, low=interval.mean - half, high=interval.mean + half, n=n)


# ---- two samples


def paired_difference(a_N: Sequence[float], b_N: Sequence[float], level: float = LEVEL) -> Interval:
    """Mean of b - a over pairs (the same seed, the same problem), with the t interval of the
    differences.
    """
    if len(a_N) != len(b_N):
        raise ValueError(f"{len(a_N)} values cannot be paired with {len(b_N)}")
    return mean_interval([b - a for a, b in zip(a_N, b_N, strict=True)], level)


def paired_share_difference(
    a_N: Sequence[float], b_N: Sequence[float], level: float = LEVEL
) -> Interval:
    """Mean of b - a over problems that both solved or not (1 or 0, or the share of several
    answers), between -1 and 1.

    The t interval of the differences and of two more, a problem that b alone solves and one that a
    alone solves: so it has a width where the two agree on every problem. The same two more:
    Bonett & Price (2012), who take the normal quantile. It covers the choice of the problems, and
    nothing else that chance decides.
    """
    if len(a_N) != len(b_N):
        raise ValueError(f"{len(a_N)} values cannot be paired with {len(b_N)}")
    return bounded_interval([b - a for a, b in zip(a_N, b_N, strict=True)], -1.0, 1.0, level)


def sign_flip_interval(differences_N: Sequence[float], level: float = LEVEL) -> Interval:
    """Mean of paired differences, with the interval of the shifts that a permutation test of their
    signs does not refuse: no normal distribution is taken for granted, only symmetry.

    Its ends are the k-th smallest and k-th largest of the means of all subsets, k = floor(2^n (1 -
    level) / 2): the true centre falls with equal chance between any two neighbours of these
    (Hartigan, 1969, typical values). Where n is too small for the level (five values reach 94%),
    there is no interval.
    """
    x_N = np.asarray(differences_N, np.float64)
    n = len(x_N)
    if not 0 < n <= MOST_FLIPPED:
        raise ValueError(f"between 1 and {MOST_FLIPPED} differences, not {n}")
    k = math.floor(2**n * (1 - level) / 2)
    if k < 1:
        return Interval(mean=float(x_N.mean()), low=-math.inf, high=math.inf, n=n)
    subsets = np.arange(1, 2**n)
    chosen_SN = (subsets[:, None] >> np.arange(n)) & 1
    means_S = np.sort(chosen_SN @ x_N / chosen_SN.sum(1))
    return Interval(mean=float(x_N.mean()), low=float(means_S[k - 1]), high=float(means_S[-k]), n=n)


def irregularity(values_N: Sequence[float]) -> str:
    """Why a t interval of these values should not be trusted alone: "two groups" (the widest gap is
    half of the range or more, with two values or more on each side), "skewed" (sample skewness
    beyond +-1), or "" where neither is seen.
    """
    x_N = np.sort(np.asarray(values_N, np.float64))
    if len(x_N) < 3 or x_N[0] == x_N[-1]:
        return ""
    gaps = np.diff(x_N)
    at = int(np.argmax(gaps)) + 1
    if gaps.max() >= (x_N[-1] - x_N[0]) / 2 and 2 <= at <= len(x_N) - 2:
        return "two groups"
    z_N = (x_N - x_N.mean()) / x_N.std()
    return "skewed" if abs(float((z_N**3).mean())) > 1 else ""


def difference(a: Interval, b: Interval) -> Interval:
    """b - a of two independent estimates, from nothing but their intervals; of two Wilson
    intervals, Newcombe's.

    low = d - sqrt((b - b.low)^2 + (a.high - a)^2), high = d + sqrt((b.high - b)^2 + (a - a.low)^2)
    Newcombe (1998), method 10; Zou & Donner (2008). If both are of the same problems, it errs to
    the wide side.
    """
    d = b.mean - a.mean
    low, high = (
        math.hypot(b.mean - b.low, a.high - a.mean),
        math.hypot(b.high - b.mean, a.mean - a.low),
    )
    return Interval(mean=d, low=d - low, high=d + high, n=min(a.n, b.n))


# ---- many tasks


def interquartile_mean(values_N: Sequence[float]) -> float:
    """Mean of what is left when floor(n / 4) values are cut off each end. Agarwal et al. (2021),
    arXiv:2108.13264.
    """
    x_N = np.sort(np.asarray(values_N, np.float64).ravel())
    cut = len(x_N) // 4
    return float(x_N[cut : len(x_N) - cut].mean()) if len(x_N) else math.nan


def stratified_bootstrap(
    values_by_task: Mapping[str, Sequence[float]],
    statistic: Statistic,
    *,
    key: Key,
    n: int = 2000,
    level: float = LEVEL,
) -> Interval:
    """Percentile interval of `statistic(all values)`, runs drawn again with replacement inside each
    task.

    Agarwal et al. (2021), section 4.1. Meant for many tasks with several runs each: of a single
    task's three runs it covers far less than it says, there `mean_interval` is right.
    """
    strata = [np.asarray(v, np.float64) for v in values_by_task.values()]
    if not strata or any(len(x_N) == 0 for x_N in strata):
        raise ValueError("every task needs at least one value")
    rng = rng_of(key)
    drawn = np.concatenate(
        [x_N[rng.integers(0, len(x_N), (n, len(x_N)))] for x_N in strata], axis=1
    )
    low, high = np.quantile([statistic(row) for row in drawn], [(1 - level) / 2, (1 + level) / 2])
    pooled = np.concatenate(strata)
    return Interval(mean=float(statistic(pooled)), low=float(low), high=float(high), n=len(pooled))


# ---- several samples a problem


def pass_at_k(n: int, c: int, k: int) -> float:
    """Probability that k of n samples, c of them right, hold a right one: 1 - C(n-c, k) / C(n, k).

    As the product over i = n-c+1..n of (1 - k/i), which does not overflow. Chen et al. (2021),
    arXiv:2107.03374, eq. 1.
    """
    if not (0 <= c <= n and 1 <= k <= n):
        raise ValueError(f"pass@{k} of {n} samples with {c} right")
    return 1.0 - math.prod(1.0 - k / i for i in range(n - c + 1, n + 1)) if n - c >= k else 1.0


def best_at_k(values_N: Sequence[float], k: int) -> float:
    """Expected highest of k of the N values, drawn without replacement: sum_i x_(i) C(i-1, k-1) /
    C(N, k) over the sorted ones. Of 0 and 1 it is pass@k.
    """
    n = len(values_N)
    if not 1 <= k <= n:
        raise ValueError(f"best@{k} of {n} values")
    ways = (math.comb(i, k - 1) / math.comb(n, k) for i in range(n))
    return float(sum(x * w for x, w in zip(sorted(values_N), ways, strict=True)))


def majority_at_k(
    answers: Sequence[Hashable], right: Sequence[bool], k: int | None = None
) -> float:
    """Probability that the most frequent answer among k of the samples is right; k None = all of
    them.

    The exact mean over all subsets of size k; a tie is broken uniformly. None is no answer and gets
    no vote. Where one answer was judged both right and wrong, winning with it counts the share of
    right ones. Voting: Wang et al. (2022), arXiv:2203.11171.
    """
    n, k = len(answers), len(answers) if k is None else k
    if len(right) != n or not 1 <= k <= n:
        raise ValueError(f"maj@{k} of {n} answers, {len(right)} of them judged")
    by_answer: dict[Hashable, list[bool]] = {}
    for answer, good in zip(answers, right, strict=True):
        if answer is not None:
            by_answer.setdefault(answer, []).append(bool(good))
    counts, silent = {a: len(js) for a, js in by_answer.items()}, sum(a is None for a in answers)
    return sum(
        sum(js)
        / len(js)
        * _wins(len(js), [c for other, c in counts.items() if other != a], silent, k)
        for a, js in by_answer.items()
        if any(js)
    )


def _wins(mine: int, others: Sequence[int], silent: int, k: int) -> float:
    """Probability that an answer given `mine` times wins the vote of k.

    For each number of votes for it, ways_ts counts how s votes of the others can fall: none above
    it, t equal to it.
    """
    total = 0.0
    for votes in range(1, min(mine, k) + 1):
        rest = k - votes
        ways_ts = np.zeros((rest // votes + 1, rest + 1))
        ways_ts[0, : silent + 1] = [math.comb(silent, j) for j in range(min(silent, rest) + 1)]
        for count in others:
            grown = np.zeros_like(ways_ts)
            for j in range(min(count, votes, rest) + 1):
                tied = int(j == votes)
                grown[tied:, j:] += (
                    math.comb(count, j) * ways_ts[: len(ways_ts) - tied, : rest + 1 - j]
                )
            ways_ts = grown
        shared = ways_ts[:, rest] / np.arange(1, len(ways_ts) + 1)
        total += math.comb(mine, votes) * float(shared.sum())
    return total / math.comb(mine + sum(others) + silent, k)


# ---- Student's t


@lru_cache(maxsize=1024)
def t_quantile(p: float, df: int) -> float:
    """The value that a t variable with `df` degrees of freedom stays below with probability p:
    bisection on `t_cdf`.
    """
    if not (0 < p < 1 and df >= 1):
        raise ValueError(f"the {p} quantile of t with {df} degrees of freedom")
    if p < 0.5:
        return -t_quantile(1 - p, df)
    low, high = 0.0, 1.0
    while t_cdf(high, df) < p:
        high *= 2
    while low < (middle := (low + high) / 2) < high:
        low, high = (middle, high) if t_cdf(middle, df) < p else (low, middle)
    return high


def t_cdf(t: float, df: float) -> float:
    """P(T <= t) = 1 - I_x(df/2, 1/2) / 2 with x = df / (df + t^2), for t >= 0. Abramowitz & Stegun
    26.7.1.
    """
    tail = betainc(df / 2, 0.5, df / (df + t * t)) / 2
    return 1 - tail if t >= 0 else tail


def betainc(a: float, b: float, x: float) -> float:
    """The regularised incomplete beta function I_x(a, b).

    x^a (1-x)^b / (a B(a, b)) times a continued fraction, by Lentz's method. Press et al., Numerical
    Recipes, 6.4.
    """
    if not (a > 0 and b > 0 and 0 <= x <= 1):
        raise ValueError(f"I_{x}({a}, {b}) is not defined")
    if x in (0.0, 1.0):
        return x
    if x > (a + 1) / (a + b + 2):  # where the fraction of the mirror image converges faster
        return 1 - betainc(b, a, 1 - x)
    front = (
        math.exp(
            math.lgamma(a + b)
            - math.lgamma(a)
            - math.lgamma(b)
            + a * math.log(x)
            + b * math.log1p(-x)
        )
        / a
    )
    tiny, c, d = 1e-300, 1.0, 1 / (1 - (a + b) * x / (a + 1))
    fraction = d
    for m in range(1, 1000):
        even = m * (b - m) * x / ((a + 2 * m - 1) * (a + 2 * m))
        odd = -(a + m) * (a + b + m) * x / ((a + 2 * m) * (a + 2 * m + 1))
        before = fraction
        for term in (even, odd):
            d, c = 1 / (1 + term * d or tiny), 1 + term / c or tiny
            fraction *= d * c
        if abs(fraction - before) <= 1e-16 * fraction:
            break
    return front * fraction


def beta_quantile(p: float, a: float, b: float) -> float:
    """What a Beta(a, b) variable stays below with probability p: bisection on `betainc`. At 10% it is
    0.489239 of Beta(8, 4).
    """
    low, high = 0.0, 1.0
    while low < (middle := (low + high) / 2) < high:
        low, high = (middle, high) if betainc(a, b, middle) < p else (low, middle)
    return high


# ---- many comparisons


def fisher(a: int, n: int, b: int, m: int) -> float:
    """Two-sided p of a of n against b of m successes being equally likely (Fisher's exact test); 1
    where a side is empty.
    """
    if not (n and m):
        return 1.0
    ways = lambda x: (
        math.comb(n, x) * math.comb(m, a + b - x)
    )  # successes x on the first side, the sum being what it is
    here = ways(a)
    each = [ways(x) for x in range(max(0, a + b - m), min(n, a + b) + 1)]
    return sum(w for w in each if w <= here) / sum(each)


def false_discoveries(p_N: Sequence[float], bound: float) -> list[bool]:
    """Which hypotheses may be rejected so that of the rejected at most `bound` are expected to be
    true.

    Benjamini and Hochberg (1995): the k smallest, k the largest with p_(k) <= k bound / N.
    """
    order = sorted(range(len(p_N)), key=lambda i: p_N[i])
    passed = [k for k, i in enumerate(order, start=1) if p_N[i] <= k * bound / len(p_N)]
    rejected = set(order[: max(passed, default=0)])
    return [i in rejected for i in range(len(p_N))]


def standard_error(values_N: np.ndarray) -> float:
    """Of the mean of values: s / sqrt(n), with n - 1 in s; 0 of one value."""
    n = len(values_N)
    return float(values_N.std(ddof=1) / n**0.5) if n > 1 else 0.0


def ranks(values_N: np.ndarray) -> np.ndarray:
    """Ranks from 1, equal values share the mean of theirs."""
    return np.array([((values_N < v).sum() + (values_N <= v).sum() + 1) / 2 for v in values_N])


def rank_correlation(x_N: np.ndarray, y_N: np.ndarray) -> float:
    """Spearman's; 0 where one of both is always the same."""
    if np.ptp(x_N) < 1e-9 or np.ptp(y_N) < 1e-9:
        return 0.0
    return float(np.corrcoef(ranks(x_N), ranks(y_N))[0, 1])


def roc_auc(score_N: np.ndarray, y_N: np.ndarray) -> float | None:
    """How often one of class 1 scores above one of class 0, ties for a half; None = there is one class."""
    one_N, zero_N = score_N[y_N == 1], score_N[y_N == 0]
    if not len(one_N) or not len(zero_N):
        return None
    differences = one_N[:, None] - zero_N[None, :]
    return float((differences > 0).mean() + 0.5 * (differences == 0).mean())
