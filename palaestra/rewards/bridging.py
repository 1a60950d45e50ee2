"""Bridging: what raters who usually disagree find helpful alike (Community Notes). U raters, N
notes, K clusters of raters.

    rating of u on n, in {0, 1/2, 1}  ~  mu + i_u + i_n + f_u * f_n

minimises mean (y - yhat)^2 + l_i * (mean i_u^2 + mean i_n^2 + mu^2) + l_f * (mean f_u^2 + mean
f_n^2), l_i = 0.15, l_f = 0.03 (twitter/communitynotes, ranking-notes.md and
matrix_factorization.py). Intercepts cost five times as much as factors, so what one camp alone
likes is explained by the factors, and i_n is what both camps agree on. The guide prints sums where
the code takes means of every block: `reg`. Factors are known up to a common sign.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Literal

import numpy as np

from palaestra.errors import Fault, UserError
from palaestra.rewards.learned import scores
from palaestra.types import Group, Reward, stage, value_class
from palaestra.verifiers.text.similarity import cosine

if TYPE_CHECKING:
    from palaestra.context import Context

Reg = Literal["mean", "sum"]
PENALTY_I, PENALTY_F = 0.15, 0.03
WORST_FIT = 0.09  # mean squared error above which a fit is a bad local optimum
HELPFUL, MOST_FACTOR, NOT_HELPFUL, SLOPE, UPPER, SLACK = 0.40, 0.50, -0.05, 0.8, -0.04, 0.01
# of a note; of a rater; share that must agree with outcomes
LEAST_RATINGS, RATER_RATINGS, AGREEMENT = 5, 10, 0.66
Status = Literal["helpful", "not helpful", "needs more ratings"]


@value_class
class Fit:
    """The parameters; `error` is the mean squared error. Raters and notes with too few ratings are
    NaN.
    """

    mu: float
    i_U: np.ndarray
    f_U: np.ndarray
    i_N: np.ndarray
    f_N: np.ndarray
    error: float


def ridge(
    y_UN: np.ndarray, f_U: np.ndarray, penalty: tuple[float, float]
) -> tuple[np.ndarray, np.ndarray]:
    """[N] intercepts and factors of the columns, least squares with penalties; y is what mu and i_u
    leave, NaN = not rated.
    """
    rated_UN = ~np.isnan(y_UN)
    y_UN = np.where(rated_UN, y_UN, 0.0)
    a_N, b_N, c_N = rated_UN.sum(0) + penalty[0], f_U @ rated_UN, (f_U**2) @ rated_UN + penalty[1]
    p_N, q_N = y_UN.sum(0), f_U @ y_UN
    det_N = a_N * c_N - b_N**2
    return (c_N * p_N - b_N * q_N) / det_N, (a_N * q_N - b_N * p_N) / det_N


def penalties(n_ratings: int, n: int, reg: Reg) -> tuple[float, float]:
    """Of one of n rows in a sum of squares: under means a penalty counts as often as a row has
    ratings on average.
    """
    times = n_ratings / n if reg == "mean" else 1.0
    return PENALTY_I * times, PENALTY_F * times


def fit_note(
    y_U: np.ndarray,
    i_U: np.ndarray,
    f_U: np.ndarray,
    mu: float,
    reg: Reg = "mean",
    times: np.ndarray | None = None,
) -> tuple[float, float]:
    """(i_n, f_n) of one more note when the raters are known. `times`: so many raters are of the
    kind of each.
    """
    times_U = np.ones(len(y_U), np.int64) if times is None else np.asarray(times)
    y, f = np.repeat(y_U - mu - i_U, times_U), np.repeat(f_U, times_U)
    i_1, f_1 = ridge(y[:, None], f, penalties(int((~np.isnan(y)).sum()), 1, reg))
    return float(i_1[0]), float(f_1[0])


def fit(
    y_UN: np.ndarray, rng: np.random.Generator, reg: Reg = "mean", rounds: int = 200, tries: int = 5
) -> Fit:
    """Alternating least squares from small random factors; starts again while the error is above
    0.09.
    """
    best = _fit(y_UN, rng, reg, rounds)
    for _ in range(tries - 1):
        if best.error <= WORST_FIT:
            break
        best = min(best, _fit(y_UN, rng, reg, rounds), key=lambda x: x.error)
    return best


def _fit(y_UN: np.ndarray, rng: np.random.Generator, reg: Reg, rounds: int) -> Fit:
    (u, n), r = y_UN.shape, int((~np.isnan(y_UN)).sum())
    mu, i_U, i_N = 0.0, np.zeros(u), np.zeros(n)
    f_U, f_N = 0.1 * rng.standard_normal(u), 0.1 * rng.standard_normal(n)
    for _ in range(rounds):
        rest = y_UN - i_U[:, None] - i_N - np.outer(f_U, f_N)
        mu = float(np.nanmean(rest) / (1 + PENALTY_I / (1 if reg == "mean" else r)))
        i_U, f_U = ridge((y_UN - mu - i_N).T, f_N, penalties(r, u, reg))
        i_N, f_N = ridge(y_UN - mu - i_U[:, None], f_U, penalties(r, n, reg))
    error = float(np.nanmean((y_UN - mu - i_U[:, None] - i_N - np.outer(f_U, f_N)) ** 2))
    return Fit(mu=mu, i_U=i_U, f_U=f_U, i_N=i_N, f_N=f_N, error=error)


def fit_twice(y_UN: np.ndarray, rng: np.random.Generator, reg: Reg = "mean") -> Fit:
    """Fits all, drops raters who agree with fewer than 0.66 of the outcomes, fits again; below the
    floors of data NaN.
    """
    n_U, n_N = (~np.isnan(y_UN)).sum(1), (~np.isnan(y_UN)).sum(0)
    u, n = np.flatnonzero(n_U >= RATER_RATINGS), np.flatnonzero(n_N >= LEAST_RATINGS)
    if not (len(u) and len(n)):
        raise UserError(
            f"no rater has {RATER_RATINGS} ratings, or no note {LEAST_RATINGS}; collect more "
            "ratings"
        )
    first = fit(y_UN[np.ix_(u, n)], rng, reg)
    u = u[rater_agreement(y_UN[np.ix_(u, n)], first) >= AGREEMENT]
    second = fit(y_UN[np.ix_(u, n)], rng, reg) if len(u) else first
    spread = {
        "i_U": (u, len(n_U)),
        "f_U": (u, len(n_U)),
        "i_N": (n, len(n_N)),
        "f_N": (n, len(n_N)),
    }
    whole = {k: np.full(size, np.nan) for k, (_, size) in spread.items()}
    for k, (at, _) in spread.items():
        whole[k][at] = getattr(second, k)
    return Fit(mu=second.mu, error=second.error, **whole)


def rater_agreement(y_UN: np.ndarray, fitted: Fit) -> np.ndarray:
    """[U] the share of ratings on decided notes that say the outcome; 1 for a rater of none."""
    outcome_N = np.array([status(i, f) for i, f in zip(fitted.i_N, fitted.f_N, strict=True)])
    good_UN, bad_UN = (
        (y_UN == 1) & (outcome_N == "helpful"),
        (y_UN == 0) & (outcome_N == "not helpful"),
    )
    n_U = ((~np.isnan(y_UN)) & (outcome_N != "needs more ratings")).sum(1)
    return np.where(n_U > 0, (good_UN.sum(1) + bad_UN.sum(1)) / np.maximum(n_U, 1), 1.0)


def status(
    i: float,
    f: float,
    votes: Sequence[tuple[int, int]] = (),
    upper: float | None = None,
    was: Status | None = None,
) -> Status:
    """What becomes of a note. `votes`: (helpful, not helpful) of the raters of either sign;
    `upper`: the bound of i.

    Helpful: i >= 0.40, |f| < 0.50 and of both signs at least 10 net votes, or 4 and a net ratio of
    0.05. A status once had is lost only 0.01 further down.
    """
    least = HELPFUL - (SLACK if was == "helpful" else 0.0)
    net = all(h - n >= 10 or (h - n >= 4 and (h - n) / (h + n) >= 0.05) for h, n in votes)
    if i >= least and abs(f) < MOST_FACTOR and net:
        return "helpful"
    below = i < NOT_HELPFUL - SLOPE * abs(f) or (upper is not None and upper < UPPER)
    return "not helpful" if below else "needs more ratings"


def novelty(texts: Sequence[str]) -> list[float]:
    """1 - the greatest similarity (cosine of character trigrams) to another text; 1 for a text
    alone.
    """
    pairs = [[cosine(a, b) for j, b in enumerate(texts) if j != i] for i, a in enumerate(texts)]
    return [1 - max(row, default=0.0) for row in pairs]


@stage
class Bridged:
    """i_n of the ratings that `model` predicts for K clusters of raters (a head each, sigmoid) +
    `new` * novelty in the group.

    `factors`, `leniency` and `sizes` are those of the clusters in a fit of human ratings, `mu` its
    mean. An empty note is worth 0.
    """

    clusters: tuple[str, ...] = ("plus", "minus")
    factors: tuple[float, ...] = (1.0, -1.0)
    leniency: tuple[float, ...] = (0.0, 0.0)
    sizes: tuple[int, ...] = (10, 10)
    mu: float = 0.5
    new: float = 0.1
    reg: Reg = "mean"
    model: str = "reward"

    def __post_init__(self) -> None:
        if len({len(self.clusters), len(self.factors), len(self.leniency), len(self.sizes)}) > 1:
            raise UserError("Bridged: clusters, factors, leniency and sizes must be as many")
        if sum(self.sizes) < LEAST_RATINGS:
            raise UserError(
                f"Bridged: {sum(self.sizes)} raters; a note needs at least {LEAST_RATINGS} ratings"
            )

    async def __call__(self, ctx: Context, group: Group) -> list[Reward | Fault]:
        y_NK = 1 / (1 + np.exp(-scores(ctx, self.model, self.clusters, group.episodes)))
        texts = [e.text for e in group.episodes]
        return [
            self._reward(y_K, text, new)
            for y_K, text, new in zip(y_NK, texts, novelty(texts), strict=True)
        ]

    def _reward(self, y_K: np.ndarray, text: str, new: float) -> Reward | Fault:
        if not np.isfinite(y_K).all():
            return Fault("reward-model", f"{self.model} gave {y_K.tolist()}")
        i, f = fit_note(
            y_K,
            np.array(self.leniency),
            np.array(self.factors),
            self.mu,
            self.reg,
            np.array(self.sizes),
        )
        parts = {
            "intercept": i,
            "factor": f,
            "novelty": new,
            **dict(zip(self.clusters, map(float, y_K), strict=True)),
        }
        return Reward(total=i + self.new * new if text.strip() else 0.0, parts=parts)
