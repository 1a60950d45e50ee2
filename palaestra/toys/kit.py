"""Baseline models for tables, in numpy: they make the leaderboards of competitions, and a program in a
sandbox may import them as `kit`.

    import kit
    kit.run("linear")      # reads train.csv and test.csv, writes submission.csv

Columns of numbers are standardised, others become one column for each of their values. This file needs
nothing but numpy and the standard library.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Sequence

import numpy as np

Rows = list[dict[str, str]]
MOST_VALUES = 20  # of a column that is no number; one with more is left out
RIDGE = 1e-2
PREDICTS = "number"  # what is predicted; another value is written behind this file in a competition


def read_table(text: str) -> Rows:
    return list(csv.DictReader(io.StringIO(text)))


def is_number(text: str) -> bool:
    try:
        return bool(np.isfinite(float(text)))
    except ValueError:
        return False


def features(train: Rows, test: Rows, skip: Sequence[str]) -> tuple[np.ndarray, np.ndarray]:
    """[N, D] and [M, D] of the columns that both tables have; missing numbers are the mean."""
    columns = list[np.ndarray]()
    both = train + test
    for name in [c for c in (test[0] if test else {}) if c not in skip and c in train[0]]:
        texts = [r[name] or "" for r in both]
        given = [x for x in texts if x.strip()]
        if given and all(map(is_number, given)):
            x_N = np.array([float(t) if t.strip() else np.nan for t in texts])
            x_N = np.where(np.isnan(x_N), np.nanmean(x_N), x_N)
            spread = x_N.std()
            columns.append((x_N - x_N.mean()) / spread if spread > 0 else x_N * 0)
            continue
        values = sorted(set(given))
        if 2 <= len(values) <= MOST_VALUES:
            columns += [np.array([float(t == v) for t in texts]) for v in values]
    x_ND = np.stack(columns, 1) if columns else np.zeros((len(both), 1))
    return x_ND[: len(train)], x_ND[len(train) :]


def mean(x_ND: np.ndarray, y_NK: np.ndarray, z_MD: np.ndarray) -> np.ndarray:
    """The mean of the targets, whatever the row."""
    return np.repeat(y_NK.mean(0, keepdims=True), len(z_MD), 0)


def linear(x_ND: np.ndarray, y_NK: np.ndarray, z_MD: np.ndarray) -> np.ndarray:
    """Ridge regression."""
    x, z = (np.concatenate([a, np.ones((len(a), 1))], 1) for a in (x_ND, z_MD))
    return z @ np.linalg.solve(x.T @ x + RIDGE * np.eye(x.shape[1]), x.T @ y_NK)


def square(x_ND: np.ndarray, y_NK: np.ndarray, z_MD: np.ndarray) -> np.ndarray:
    """Ridge regression on the columns and their products."""
    i, j = np.triu_indices(x_ND.shape[1])
    x, z = (np.concatenate([a, a[:, i] * a[:, j]], 1) for a in (x_ND, z_MD))
    return linear(x, y_NK, z)


def nearest(k: int) -> Callable[[np.ndarray, np.ndarray, np.ndarray], np.ndarray]:
    """The mean of the k nearest rows, by Euclidean distance."""

    def model(x_ND: np.ndarray, y_NK: np.ndarray, z_MD: np.ndarray) -> np.ndarray:
        far_MN = ((z_MD[:, None, :] - x_ND[None, :, :]) ** 2).sum(2)
        near_Mk = np.argsort(far_MN, axis=1, kind="stable")[:, :k]
        return y_NK[near_Mk].mean(1)

    return model


MODELS: dict[str, Callable[[np.ndarray, np.ndarray, np.ndarray], np.ndarray]] = {
    "mean": mean,
    "linear": linear,
    "square": square,
    "near1": nearest(1),
    "near5": nearest(5),
    "near15": nearest(15),
}


def predict(
    model: str, train: Rows, test: Rows, id_column: str, target: str, kind: str
) -> list[str]:
    """The target of each row of `test`, as text.

    Args:
        kind: "number", "label" (the likeliest), or "chance" (of the largest label, within [0, 1]).

    Raises:
        ValueError: there is no such model.
    """
    if model not in MODELS:
        raise ValueError(f"no model {model!r}; there are {', '.join(MODELS)}")
    x_ND, z_MD = features(train, test, (id_column, target))
    texts = [r[target] for r in train]
    if kind == "number":
        y_N1 = np.array([float(t) for t in texts])[:, None]
        return [repr(float(v)) for v in MODELS[model](x_ND, y_N1, z_MD)[:, 0]]
    labels = sorted(set(texts), key=lambda t: (float(t) if is_number(t) else 0.0, t))
    y_NK = np.array([[float(t == v) for v in labels] for t in texts])
    p_MK = MODELS[model](x_ND, y_NK, z_MD)
    if kind == "label":
        return [labels[int(k)] for k in p_MK.argmax(1)]
    return [repr(float(p)) for p in np.clip(p_MK[:, -1], 0.0, 1.0)]


def run(model: str, kind: str = "") -> None:
    """Fits a model to train.csv and writes submission.csv, whose columns are those of
    sample_submission.csv: the id and one target. `kind` is that of `predict`, "" = as the competition says.
    """
    tables = dict[str, Rows]()
    for name in ("train", "test", "sample_submission"):
        with open(f"{name}.csv", newline="") as file:
            tables[name] = read_table(file.read())
    id_column, target = list(tables["sample_submission"][0])[:2]
    kind = kind or PREDICTS
    given = predict(model, tables["train"], tables["test"], id_column, target, kind)
    with open("submission.csv", "w", newline="") as file:
        out = csv.writer(file)
        out.writerow([id_column, target])
        out.writerows([r[id_column], v] for r, v in zip(tables["test"], given, strict=True))
    print(f"{model}: {len(given)} rows written")
