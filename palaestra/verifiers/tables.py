"""How predictions for a table are measured: the usual metrics, by their public definitions.

    accuracy   share of equal labels                    rmse    sqrt(mean (a - y)^2)
    f1         2 TP / (2 TP + FP + FN)                  mae     mean |a - y|
    macro_f1   the mean of f1 over all labels           rmsle   sqrt(mean (log(1 + a) - log(1 + y))^2)
    auc        P(score of a positive > of a negative),  r2      1 - sum (a - y)^2 / sum (y - mean y)^2
               ties count one half
    logloss    -mean log p(y), p within [1e-15, 1 - 1e-15]

a is the prediction, y the answer. The positive label of f1, auc and logloss is the largest one, as a
number or as text. Labels are equal as numbers ("1" and "1.0") or as text without outer blanks.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

import numpy as np

EPSILON = 1e-15  # of probabilities


class TableMetric(NamedTuple):
    """`score` takes predictions and answers, texts of equal number. It raises ValueError with what is wrong
    for predictions that it cannot use.
    """

    score: Callable[[Sequence[str], Sequence[str]], float]
    higher: bool  # is better
    predicts: str  # "label", "number", or "chance" of the positive label


def numbers(texts: Sequence[str]) -> np.ndarray:
    """[N] texts as numbers. Raises ValueError for one that is no finite number."""
    values = [number(t) for t in texts]
    if bad := [t for t, v in zip(texts, values, strict=True) if v is None]:
        raise ValueError(f"{bad[0][:40]!r} is no number")
    return np.array(values, float)


def number(text: str) -> float | None:
    """The finite number that a text is; None = it is none."""
    try:
        value = float(text)
    except ValueError:
        return None
    return value if np.isfinite(value) else None


def label(text: str) -> float | str:
    value = number(text)
    return text.strip() if value is None else value


def positive_of(answers: Sequence[str]) -> float | str:
    """The largest label; numbers are smaller than texts."""
    return max(map(label, answers), key=lambda x: (isinstance(x, str), x))


def accuracy(given: Sequence[str], answers: Sequence[str]) -> float:
    return float(np.mean([label(a) == label(y) for a, y in zip(given, answers, strict=True)]))


def f1_of(given: Sequence[str], answers: Sequence[str], positive: float | str) -> float:
    pairs = [
        (label(a) == positive, label(y) == positive) for a, y in zip(given, answers, strict=True)
    ]
    hits, n_positive, there = (
        sum(x) for x in ([a and y for a, y in pairs], *zip(*pairs, strict=True))
    )
    return 2 * hits / (n_positive + there) if n_positive + there else 0.0


def f1(given: Sequence[str], answers: Sequence[str]) -> float:
    return f1_of(given, answers, positive_of(answers))


def macro_f1(given: Sequence[str], answers: Sequence[str]) -> float:
    labels = {*map(label, given), *map(label, answers)}
    return float(np.mean([f1_of(given, answers, x) for x in labels]))


def auc(given: Sequence[str], answers: Sequence[str]) -> float:
    a_N, positive = numbers(given), positive_of(answers)
    y_N = np.array([label(y) == positive for y in answers])
    above, below = a_N[y_N], a_N[~y_N]
    if not len(above) or not len(below):
        return 0.5
    gap = above[:, None] - below[None, :]
    return float(((gap > 0) + 0.5 * (gap == 0)).mean())


def logloss(given: Sequence[str], answers: Sequence[str]) -> float:
    p_N, positive = numbers(given), positive_of(answers)
    if p_N.min() < 0 or p_N.max() > 1:
        raise ValueError("probabilities are from 0 to 1")
    p_N = np.clip(p_N, EPSILON, 1 - EPSILON)
    y_N = np.array([label(y) == positive for y in answers])
    return float(-np.log(np.where(y_N, p_N, 1 - p_N)).mean())


def rmse(given: Sequence[str], answers: Sequence[str]) -> float:
    return float(np.sqrt(((numbers(given) - numbers(answers)) ** 2).mean()))


def mae(given: Sequence[str], answers: Sequence[str]) -> float:
    return float(np.abs(numbers(given) - numbers(answers)).mean())


def rmsle(given: Sequence[str], answers: Sequence[str]) -> float:
    a_N, y_N = numbers(given), numbers(answers)
    if a_N.min() <= -1:
        raise ValueError("predictions are above -1")
    return float(np.sqrt(((np.log1p(a_N) - np.log1p(y_N)) ** 2).mean()))


def r2(given: Sequence[str], answers: Sequence[str]) -> float:
    a_N, y_N = numbers(given), numbers(answers)
    whole = ((y_N - y_N.mean()) ** 2).sum()
    return float(1 - ((a_N - y_N) ** 2).sum() / whole) if whole > 0 else 0.0


TABLE_METRICS: Mapping[str, TableMetric] = {
    "accuracy": TableMetric(accuracy, True, "label"),
    "f1": TableMetric(f1, True, "label"),
    "macro_f1": TableMetric(macro_f1, True, "label"),
    "auc": TableMetric(auc, True, "chance"),
    "logloss": TableMetric(logloss, False, "chance"),
    "rmse": TableMetric(rmse, False, "number"),
    "mae": TableMetric(mae, False, "number"),
    "rmsle": TableMetric(rmsle, False, "number"),
    "r2": TableMetric(r2, True, "number"),
}


def position_score(score: float, board: Sequence[float], higher: bool) -> float:
    """(N - p + 1) / N for the place p, from 1, of the first entry that `score` equals or beats on a board
    of N entries; N + 1 where it beats none. The board may be in any order.
    """
    beaten = sum(score >= x if higher else score <= x for x in board)
    return beaten / len(board)
