"""Pure functions on flat arrays. x_N: observations, key_N: which of them are compared; all return
[N].
"""

from __future__ import annotations

import numpy as np


def group_mean(x_N: np.ndarray, key_N: np.ndarray) -> np.ndarray:
    """[N] the mean of `x_N` over the observations that have the same key in `key_N`."""
    total = np.bincount(key_N, x_N)
    return (total / np.maximum(np.bincount(key_N), 1))[key_N]


def group_std(x_N: np.ndarray, key_N: np.ndarray, ddof: int = 0) -> np.ndarray:
    """Standard deviation of x within its key; 0 where fewer than ddof + 1 observations."""
    square = (x_N - group_mean(x_N, key_N)) ** 2
    free = np.bincount(key_N) - ddof
    return np.sqrt(np.bincount(key_N, square) / np.where(free > 0, free, 1))[key_N]


def leave_one_out(x_N: np.ndarray, key_N: np.ndarray) -> np.ndarray:
    """x_i minus the mean of the others of its key; 0 where there is no other. RLOO,
    arXiv:2402.14740, eq. 7.
    """
    n_N = np.bincount(key_N)[key_N]
    return np.where(n_N > 1, (x_N - group_mean(x_N, key_N)) * n_N / np.maximum(n_N - 1, 1), 0.0)


def discounted_sums(x_T: np.ndarray, gamma: float) -> np.ndarray:
    """sum_{k>=t} gamma^{k-t} x_k."""
    out, running = np.empty_like(x_T, np.float64), 0.0
    for t in range(len(x_T) - 1, -1, -1):
        running = x_T[t] + gamma * running
        out[t] = running
    return out


def gae(reward_T: np.ndarray, value_T: np.ndarray, gamma: float, lam: float) -> np.ndarray:
    """Generalised advantage estimation, arXiv:1506.02438 eq. 16; the value after the last token is
    0.

    A_t = sum_l (gamma lam)^l delta_{t+l},  delta_t = r_t + gamma V_{t+1} - V_t.
    """
    delta_T = reward_T + gamma * np.append(value_T[1:], 0.0) - value_T
    return discounted_sums(delta_T, gamma * lam)
