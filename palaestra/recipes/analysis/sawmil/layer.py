"""What a place of a model says of statements it was not fitted to. N = statements, C = classes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

import palaestra as pl
from palaestra.recipes.analysis.sawmil.margin import (
    MarginProbe,
    Method,
    conformal_p,
    fit_class,
    matthews,
    nonconformity,
)

FOLDS = 3
MOST = 256  # numbers of a state; more are reduced to this many directions


@dataclass(frozen=True, slots=True)
class VeracitySplit:
    """Which statements are fitted to, which calibrate, which are measured; `fold` of each fitted one."""

    train: Sequence[int]
    calibration: Sequence[int]
    test: Sequence[int]
    fold: np.ndarray


@dataclass(frozen=True, slots=True)
class ProbeSettings:
    """See `fit_class`. `penalty` 0 = that of `penalties` with the best Matthews correlation on the other
    folds, for each class.
    """

    penalty: float = 0.0
    penalties: tuple[float, ...] = (0.1, 1.0, 10.0)
    marked: int = 2
    eta: float = 0.1


def split_statements(entities: Sequence[str], seed: int) -> VeracitySplit:
    """Half of the entities, a quarter and a quarter, with all their statements; and three folds of the
    first, none of which shares an entity with another.
    """
    names = sorted({*entities}, key=lambda e: pl.seed_of(("statements", seed, e)))
    cut = [round(len(names) / 2), round(len(names) * 3 / 4), len(names)]
    part = {e: sum(i >= c for c in cut) for i, e in enumerate(names)}
    fold = {e: i % FOLDS for i, e in enumerate(names)}
    at = [[i for i, e in enumerate(entities) if part[e] == k] for k in range(3)]
    return VeracitySplit(*at, fold=np.array([fold[entities[i]] for i in at[0]]))


@dataclass(frozen=True, slots=True, eq=False)
class StateScale:
    """Numbers of a state at mean 0 and variance 1, in the directions that count."""

    mean_D: np.ndarray
    scale_D: np.ndarray
    basis_DK: np.ndarray | None

    def __call__(self, bag_TD: np.ndarray) -> np.ndarray:
        x = (bag_TD.astype(np.float64) - self.mean_D) / self.scale_D
        return x if self.basis_DK is None else x @ self.basis_DK

    def raw(self, weight_K: np.ndarray) -> np.ndarray:
        """[D] a direction of scaled states as one of the states themselves."""
        w = weight_K if self.basis_DK is None else self.basis_DK @ weight_K
        return w / self.scale_D


def fit_scale(bags: Sequence[np.ndarray]) -> StateScale:
    """From the states of bags. Of more than 256 numbers it keeps the 256 leading directions, by two
    rounds of subspace iteration (Halko et al. 2011).
    """
    x = np.concatenate(bags).astype(np.float64)
    mean, scale = x.mean(0), x.std(0)
    scale = np.where(scale < 1e-9, 1.0, scale)
    if x.shape[1] <= MOST:
        return StateScale(mean, scale, None)
    x = (x - mean) / scale
    start = pl.rng_of(("scale", x.shape[1])).standard_normal((x.shape[1], MOST))
    basis = np.linalg.qr(start)[0]
    for _ in range(3):
        basis = np.linalg.qr(x.T @ (x @ basis))[0]
    return StateScale(mean, scale, basis)


def fit_classes(
    bags: Sequence[np.ndarray],
    labels: Sequence[str],
    fold_N: np.ndarray,
    classes: Sequence[str],
    method: Method,
    settings: ProbeSettings,
) -> tuple[list[MarginProbe], np.ndarray]:
    """A probe for each class, and [N, C] the scores of the bags by probes of the other folds."""
    probes, scores = [], np.zeros((len(bags), len(classes)))
    tried = settings.penalties if not settings.penalty else (settings.penalty,)
    for c, name in enumerate(classes):
        positive = np.array([y == name for y in labels])
        best = (-2.0, tried[0], np.zeros(len(bags)))
        for penalty in tried if method != "mean" else tried[:1]:
            out = np.zeros(len(bags))
            for f in range(FOLDS):
                kept = np.flatnonzero(fold_N != f).tolist()
                held = np.flatnonzero(fold_N == f).tolist()
                if 0 < positive[kept].sum() < len(kept) and len(held):
                    probe = fit_class(
                        [bags[i] for i in kept],
                        positive[kept],
                        method,
                        penalty,
                        settings.marked,
                        settings.eta,
                    )
                    out[held] = probe.score([bags[i] for i in held])
            score = matthews([*positive], [*(out > 0)])
            if score > best[0]:
                best = (score, penalty, out)
        scores[:, c] = best[2]
        probes.append(fit_class(bags, positive, method, best[1], settings.marked, settings.eta))
    return probes, scores


def judge_layer(
    bags: Sequence[np.ndarray],
    labels: Sequence[str],
    split: VeracitySplit,
    method: Method,
    settings: ProbeSettings,
    shuffled: int | None = None,
) -> dict[str, Any]:
    """Plain data: "fitted", Matthews' correlation on statements of the other folds; "calibration" and
    "test", [N, C] probabilities of the classes in the order of their names; and the raw "directions" of
    the classes, [C, D].

    The three-way probabilities are those of a logistic regression, balanced over classes, of the scores
    by probes of the other folds.

    Args:
        shuffled: a seed; labels of the fitted statements are in a random order.
    """
    classes = sorted({*labels})
    fitted = [labels[i] for i in split.train]
    if shuffled is not None:
        order = pl.rng_of(("shuffled labels", shuffled)).permutation(len(fitted))
        fitted = [fitted[i] for i in order]
    scale = fit_scale([bags[i] for i in split.train])
    part = [[scale(bags[i]) for i in at] for at in (split.train, split.calibration, split.test)]
    probes, out = fit_classes(part[0], fitted, split.fold, classes, method, settings)
    mean, spread = out.mean(0), np.maximum(out.std(0), 1e-9)
    joint = pl.models.fit_probe((out - mean) / spread, fitted, balanced=True)

    def shares(some: Sequence[np.ndarray]) -> np.ndarray:
        scores = np.stack([p.score(some) for p in probes], 1)
        return np.exp(joint.logp((scores - mean) / spread))

    return {
        "fitted": matthews(fitted, joint.predict((out - mean) / spread)),
        "calibration": shares(part[1]).tolist(),
        "test": shares(part[2]).tolist(),
        "directions": [scale.raw(p.weight_D).tolist() for p in probes],
    }


@dataclass(frozen=True, slots=True)
class LayerScore:
    """How good the probabilities of a place are.

    right: of each measured statement. sets: the labels that are kept of each. mcc: of the likeliest
    labels. wmcc: Matthews' correlation of the statements with one label in their set, times their share,
    `acceptance`. coverage: the share of statements whose set has the right label.
    """

    right: Sequence[bool]
    sets: Sequence[Sequence[str]]
    mcc: float
    acceptance: float
    wmcc: float
    coverage: float


def score_layer(
    fit: Mapping[str, Any],
    classes: Sequence[str],
    calibration: Sequence[str],
    test: Sequence[str],
    alpha: float,
) -> LayerScore:
    """From what `judge_layer` gave, its classes in their order, and the right labels."""
    place = {c: i for i, c in enumerate(classes)}
    p_MC, p_NC = np.array(fit["calibration"]), np.array(fit["test"])
    own_M = nonconformity(p_MC)[np.arange(len(p_MC)), [place[y] for y in calibration]]
    kept_NC = conformal_p(own_M, nonconformity(p_NC)) > alpha
    predicted = [classes[i] for i in p_NC.argmax(1)]
    one: list[int] = np.flatnonzero(kept_NC.sum(1) == 1).tolist()
    accepted = [classes[kept_NC[i].argmax()] for i in one]
    share = len(one) / len(test)
    return LayerScore(
        right=[a == b for a, b in zip(predicted, test, strict=True)],
        sets=[[c for c, k in zip(classes, row, strict=True) if k] for row in kept_NC],
        mcc=matthews(test, predicted),
        acceptance=share,
        wmcc=share * matthews([test[i] for i in one], accepted),
        coverage=float(np.mean([kept_NC[i, place[y]] for i, y in enumerate(test)])),
    )
