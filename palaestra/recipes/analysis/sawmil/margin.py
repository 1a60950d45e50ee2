"""Linear probes of bags, and the sets that split conformal prediction makes of them.

A bag is the states of a statement's last tokens, [T, D]; a probe is w [D] and b, for one class against the
rest. N = examples, C = classes.

    support vectors   min 1/2 |w|^2 + sum_i c_i max(0, m_i - y_i (w x_i + b))^2,  m = 1, c_i = C / n of its side
    stage 1           a negative bag is an example for each of its tokens; a positive one is its mean, with the
                      margin m = 2 / |B| - 1: one of its tokens at 1 and the others at -1 are enough
    stage 2           support vectors of tokens: positive are those of positive bags that stage 1 scores in the
                      top `eta` of these and that `marked` allows, at least 5%; negative are all others
    score of a bag    the largest w x + b of its tokens

The squared slack is smooth, so Newton's method finds the one minimum; the paper's slack is not squared.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

Method = Literal["sawmil", "svm", "mean"]
METHODS: tuple[Method, ...] = ("sawmil", "svm", "mean")
LEAST = 0.05  # of the tokens of positive bags that are positive in stage 2
NEWTON = 50
HALVES = [0.5**i for i in range(20)]  # sizes of a step that are tried in turn


@dataclass(frozen=True, slots=True, eq=False)
class MarginProbe:
    """w x + b: a class against the rest. `last`: it reads the last token alone."""

    weight_D: np.ndarray
    bias: float
    last: bool = False

    def score(self, bags: Sequence[np.ndarray]) -> np.ndarray:
        """[N] of bags."""
        kept = [b[-1:] if self.last else b for b in bags]
        return np.array([float((b @ self.weight_D).max() + self.bias) for b in kept])


def fit_margin(
    x_ND: np.ndarray, sign_N: np.ndarray, margin_N: np.ndarray, cost_N: np.ndarray
) -> tuple[np.ndarray, float]:
    """The minimum of the module's loss of support vectors: w and b."""
    x = np.hstack([x_ND, np.ones((len(x_ND), 1))])
    ridge = np.diag([1.0] * x_ND.shape[1] + [1e-9])  # the bias is free
    v = np.zeros(x.shape[1])

    gap_N = margin_N - sign_N * (x @ v)
    before = float((cost_N * np.maximum(0, gap_N) ** 2).sum())
    for _ in range(NEWTON):
        active = gap_N > 0
        weighed = x[active] * (2 * cost_N[active])[:, None]
        best = np.linalg.solve(
            ridge + weighed.T @ x[active], weighed.T @ (sign_N * margin_N)[active]
        )
        step, moved_N = best - v, sign_N * (x @ (best - v))
        for size in HALVES:
            tried, gap = v + size * step, gap_N - size * moved_N
            after = float(tried @ ridge @ tried / 2 + (cost_N * np.maximum(0, gap) ** 2).sum())
            if after < before:
                break
        else:
            break
        gain, v, gap_N, before = before - after, tried, gap, after
        if gain <= 1e-9 * max(1.0, after):
            break
    return v[:-1], float(v[-1])


def balanced(sign_N: np.ndarray, penalty: float) -> np.ndarray:
    """[N] C / n of the examples of the same sign."""
    n = np.where(sign_N > 0, (sign_N > 0).sum(), (sign_N < 0).sum())
    return penalty / np.maximum(n, 1)


def fit_class(
    bags: Sequence[np.ndarray],
    positive_N: np.ndarray,
    method: Method,
    penalty: float = 1.0,
    marked: int = 2,
    eta: float = 0.1,
) -> MarginProbe:
    """A probe of a class.

    Args:
        bags: [T, D] each.
        positive_N: which are of the class.
        method: "svm" is support vectors and "mean" the difference of the two means, both on last
            tokens.
        penalty: C.
        marked: tokens at the end of a bag that may be positive in stage 2.
        eta: share of the tokens of positive bags that are.
    """
    sign_N = np.where(positive_N, 1.0, -1.0)
    if method != "sawmil":
        x_ND = np.stack([b[-1] for b in bags])
        if method == "mean":
            high, low = x_ND[positive_N].mean(0), x_ND[~positive_N].mean(0)
            return MarginProbe(high - low, -float((high - low) @ (high + low)) / 2, last=True)
        return MarginProbe(
            *fit_margin(x_ND, sign_N, np.ones(len(bags)), balanced(sign_N, penalty)), last=True
        )
    first = fit_margin(*first_stage(bags, positive_N, penalty))
    x_MD, sign_M = second_stage(bags, positive_N, first, marked, eta)
    return MarginProbe(*fit_margin(x_MD, sign_M, np.ones(len(x_MD)), balanced(sign_M, penalty)))


def first_stage(
    bags: Sequence[np.ndarray], positive_N: np.ndarray, penalty: float
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Examples, signs, margins and costs of stage 1."""
    high = [b for b, p in zip(bags, positive_N, strict=True) if p]
    low_MD = np.concatenate([b for b, p in zip(bags, positive_N, strict=True) if not p])
    x = np.concatenate([np.stack([b.mean(0) for b in high]), low_MD])
    sign = np.array([1.0] * len(high) + [-1.0] * len(low_MD))
    margin = np.array([2 / len(b) - 1 for b in high] + [1.0] * len(low_MD))
    return x, sign, margin, balanced(sign, penalty)


def second_stage(
    bags: Sequence[np.ndarray],
    positive_N: np.ndarray,
    first: tuple[np.ndarray, float],
    marked: int,
    eta: float,
) -> tuple[np.ndarray, np.ndarray]:
    """Tokens of all bags, and their signs."""
    x_MD = np.concatenate(bags)
    of_M = np.concatenate([np.full(len(b), p) for b, p in zip(bags, positive_N, strict=True)])
    mark_M = np.concatenate([np.arange(len(b)) >= len(b) - marked for b in bags])
    score_M = x_MD @ first[0] + first[1]
    allowed_M = of_M & mark_M
    chosen_M = allowed_M & (score_M >= np.quantile(score_M[of_M], 1 - eta))
    least = int(np.ceil(LEAST * of_M.sum()))
    if chosen_M.sum() < least:
        top = np.argsort(np.where(allowed_M, -score_M, np.inf), kind="stable")[:least]
        chosen_M = np.zeros_like(of_M)
        chosen_M[top[allowed_M[top]]] = True
    return x_MD, np.where(chosen_M, 1.0, -1.0)


def matthews(gold: Sequence[Any], predicted: Sequence[Any]) -> float:
    """Matthews' correlation of two labellings, of any number of classes (Gorodkin 2004); 0 where one of
    them does not vary.
    """
    names = sorted({*gold, *predicted}, key=repr)
    if not names:
        return 0.0
    g_NC = np.array([[x == c for c in names] for x in gold], float)
    s_NC = np.array([[x == c for c in names] for x in predicted], float)
    g_NC, s_NC = g_NC - g_NC.mean(0), s_NC - s_NC.mean(0)
    scale = np.sqrt((g_NC**2).sum() * (s_NC**2).sum())
    return float((g_NC * s_NC).sum() / scale) if scale > 1e-12 else 0.0


def nonconformity(p_NC: np.ndarray) -> np.ndarray:
    """[N, C] how odd each label is: (1 - (p_y - the largest other p)) / 2."""
    a_NC = np.empty_like(p_NC)
    for y in range(p_NC.shape[1]):
        a_NC[:, y] = (1 - (p_NC[:, y] - np.delete(p_NC, y, axis=1).max(1))) / 2
    return a_NC


def conformal_p(calibration_M: np.ndarray, a_NC: np.ndarray) -> np.ndarray:
    """[N, C] (#{calibration scores >= a} + 1) / (M + 1)."""
    at_least = (calibration_M[None, None] >= a_NC[..., None] - 1e-12).sum(-1)
    return (at_least + 1) / (len(calibration_M) + 1)
