"""Algorithms for bandits, as teachers and as players to compare with, and what is measured of a player.

Suffixes: K arms, T pulls so far, D features of a context. An algorithm is a function of a
`BanditHistory` and randomness that returns the number of an arm.

    ucb        argmax of m_k + sqrt(alpha ln t / n_k), t = sum of n_k; with contexts LinUCB,
               argmax of theta_k . x + alpha sqrt(x' A_k^-1 x), A_k = I + sum of x x'
    thompson   argmax of draws from the posteriors: Beta(1 + successes, 1 + failures) where all rewards are
               0 or 1, else Normal(sum / (1 + n), 1 / (1 + n)); with contexts Normal(theta_k . x, x' A_k^-1 x)
    greedy     argmax of m_k, with contexts of theta_k . x
    random     each arm with the same probability

Without contexts the first three pull each arm once, in order, before they compare; of equal arms they
take the first. Auer et al. (2002), Li et al. (2010), Thompson (1933); alpha 0.5 is that of EVOLvE
(arXiv:2410.06238), whose failure shares are those of Krishnamurthy et al. (arXiv:2403.15371).
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Mapping, Sequence

import numpy as np

from palaestra.errors import UserError
from palaestra.types import value_class

ALPHA = 0.5
POWERS = tuple(0.25 * i for i in range(1, 13))  # of ln t, that `fit_growth` tries


@value_class
class BanditHistory:
    """What a player of a bandit knows: arms and rewards by pull, with the features of their contexts,
    and those of the present context; () = there are no contexts.
    """

    n_arms: int
    arms: tuple[int, ...] = ()
    rewards: tuple[float, ...] = ()
    contexts: tuple[tuple[float, ...], ...] = ()
    context: tuple[float, ...] = ()

    def means(self) -> tuple[np.ndarray, np.ndarray]:
        """[K] pulls and mean rewards; the mean of an arm that was never pulled is 0."""
        n_K = np.bincount(self.arms, minlength=self.n_arms).astype(float)
        sums_K = np.bincount(self.arms, self.rewards, minlength=self.n_arms)
        return n_K, sums_K / np.maximum(n_K, 1)


def exploration_bonus(n_K: np.ndarray, alpha: float = ALPHA) -> np.ndarray:
    """[K] sqrt(alpha ln t / n_k) with t = sum of n_k; infinite where an arm was never pulled."""
    log_t = math.log(max(1.0, float(n_K.sum())))
    return np.where(n_K > 0, np.sqrt(alpha * log_t / np.maximum(n_K, 1)), np.inf)


def ridge(x_TD: np.ndarray, reward_T: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """theta = A^-1 X' r [D] and A^-1 [D, D] with A = I + X' X."""
    inverse_DD = np.linalg.inv(np.eye(x_TD.shape[1]) + x_TD.T @ x_TD)
    return inverse_DD @ (x_TD.T @ reward_T), inverse_DD


def linear_values(history: BanditHistory) -> tuple[np.ndarray, np.ndarray]:
    """[K] theta_k . x and x' A_k^-1 x at the present context."""
    x_D, arm_T = np.asarray(history.context, float), np.asarray(history.arms, int)
    x_TD = np.asarray(history.contexts, float).reshape(len(arm_T), len(x_D))
    reward_T = np.asarray(history.rewards, float)
    fits = [ridge(x_TD[arm_T == k], reward_T[arm_T == k]) for k in range(history.n_arms)]
    return (
        np.array([theta @ x_D for theta, _ in fits]),
        np.array([x_D @ inverse @ x_D for _, inverse in fits]),
    )


def guide_values(history: BanditHistory, alpha: float = ALPHA) -> tuple[np.ndarray, np.ndarray]:
    """[K] the two addends of an arm's index: what it is taken to pay, and the bonus of exploring it."""
    if history.context:
        value_K, variance_K = linear_values(history)
        return value_K, alpha * np.sqrt(variance_K)
    n_K, mean_K = history.means()
    return mean_K, exploration_bonus(n_K, alpha)


def beta_posterior(n_K: np.ndarray, successes_K: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """[K] both parameters of Beta(1 + successes, 1 + failures), from a uniform prior."""
    return 1 + successes_K, 1 + n_K - successes_K


def gaussian_posterior(
    n_K: np.ndarray, sums_K: np.ndarray, noise: float = 1.0, spread: float = 1.0
) -> tuple[np.ndarray, np.ndarray]:
    """[K] mean and standard deviation of an arm's mean, of a prior Normal(0, spread^2) and rewards with
    the standard deviation `noise`: precision 1 / spread^2 + n / noise^2, mean (sum / noise^2) / precision.
    """
    precision_K = 1 / spread**2 + n_K / noise**2
    return sums_K / noise**2 / precision_K, 1 / np.sqrt(precision_K)


Algorithm = Callable[[BanditHistory, np.random.Generator], int]


def first_unpulled(history: BanditHistory) -> int | None:
    """The first arm that was never pulled, where there are no contexts; None = there is none."""
    if history.context:
        return None
    pulled = set(history.arms)
    return next((k for k in range(history.n_arms) if k not in pulled), None)


def ucb_arm(history: BanditHistory, rng: np.random.Generator, alpha: float = ALPHA) -> int:
    if (arm := first_unpulled(history)) is not None:
        return arm
    value_K, bonus_K = guide_values(history, alpha)
    return int((value_K + bonus_K).argmax())


def greedy_arm(history: BanditHistory, rng: np.random.Generator) -> int:
    if (arm := first_unpulled(history)) is not None:
        return arm
    return int(guide_values(history)[0].argmax())


def thompson_arm(history: BanditHistory, rng: np.random.Generator) -> int:
    if (arm := first_unpulled(history)) is not None:
        return arm
    if history.context:
        value_K, variance_K = linear_values(history)
        return int(rng.normal(value_K, np.sqrt(variance_K)).argmax())
    n_K, mean_K = history.means()
    if set(history.rewards) <= {0.0, 1.0}:
        return int(rng.beta(*beta_posterior(n_K, n_K * mean_K)).argmax())
    return int(rng.normal(*gaussian_posterior(n_K, n_K * mean_K)).argmax())


def random_arm(history: BanditHistory, rng: np.random.Generator) -> int:
    return int(rng.integers(history.n_arms))


ALGORITHMS: Mapping[str, Algorithm] = {
    "ucb": ucb_arm, "thompson": thompson_arm, "greedy": greedy_arm, "random": random_arm,
}  # fmt: skip


def bandit_algorithm(name: str, alpha: float = ALPHA) -> Algorithm:
    """An algorithm by name. Raises UserError for another name."""
    if name == "ucb":
        return lambda history, rng: ucb_arm(history, rng, alpha)
    if name not in ALGORITHMS:
        raise UserError(f"no algorithm {name!r} for bandits; take one of {', '.join(ALGORITHMS)}")
    return ALGORITHMS[name]


def is_exploring(history: BanditHistory, arm: int) -> bool:
    """Whether a choice is none of the greedy algorithm: it has a lower value than another arm, and none
    was left to be pulled first.
    """
    if first_unpulled(history) is not None:
        return False
    value_K = guide_values(history)[0]
    return bool(value_K[arm] < value_K.max())


# ---- what is measured of a player


def suffix_failure(best_T: Sequence[bool]) -> bool:
    """Whether no pull of the last half was of a best arm. Raises ValueError without pulls."""
    if not best_T:
        raise ValueError("suffix_failure needs at least one pull")
    return not any(best_T[len(best_T) // 2 :])


def least_share(arms: Sequence[int], n_arms: int) -> float:
    """K x the share of the arm that was pulled least: 1 where all were pulled alike, 0 where one never was."""
    n_K = np.bincount(arms, minlength=n_arms)
    return n_arms * float(n_K.min()) / max(1, len(arms))


def fit_growth(regret_T: Sequence[float], gap: float = 1.0) -> Mapping[str, float]:
    """The growth of cumulative regret, by least squares with coefficients of at least 0:

        Reg(t) ~ log (ln t)^power / gap + linear t + constant,    t = 1 .. T

    The gap between the best and the next arm only scales "log". `power` is one of 0.25, 0.5, ..., 3.
    "linear" above 0 is regret that grows for ever.

    Raises:
        ValueError: the gap is not above 0.
    """
    if gap <= 0:
        raise ValueError(f"a gap between arms is above 0, not {gap}")
    y_T = np.asarray(regret_T, float)
    t_T = np.arange(1, len(y_T) + 1, dtype=float)
    fits = list[tuple[float, float, np.ndarray]]()
    for power in POWERS:
        terms_T3 = np.stack([np.log(t_T) ** power / gap, t_T, np.ones_like(t_T)], 1)
        weights_3 = non_negative_fit(terms_T3, y_T)
        fits.append((float(((terms_T3 @ weights_3 - y_T) ** 2).sum()), power, weights_3))
    _, power, (log, linear, constant) = min(fits, key=lambda fit: fit[:2])
    return {
        "log": float(log), "power": power, "linear": float(linear), "constant": float(constant),
    }  # fmt: skip


def non_negative_fit(x_TD: np.ndarray, y_T: np.ndarray) -> np.ndarray:
    """[D] least squares with weights of at least 0, by trying each set of columns: for few columns."""
    n = x_TD.shape[1]
    best, least = np.zeros(n), float((y_T**2).sum())
    for size in range(1, n + 1):
        for columns in map(list, itertools.combinations(range(n), size)):
            w = np.linalg.lstsq(x_TD[:, columns], y_T, rcond=None)[0]
            error = float(((x_TD[:, columns] @ w - y_T) ** 2).sum())
            if (w >= 0).all() and error < least - 1e-12:
                best, least = np.zeros(n), error
                best[columns] = w
    return best
