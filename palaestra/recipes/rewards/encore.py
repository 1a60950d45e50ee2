"""ENCORE: several rule scores made one reward, rules of high entropy counting less.

    H_k = -sum_b p_kb ln p_kb,   w_k = exp(-H_k / tau) / sum_j exp(-H_j / tau),   r = sum_k w_k phi_k        (arXiv:2503.20995)

p_kb is the share of rule k's ratings at level b over the training set, tau = 2, and phi_k in [0, 1]
the head of rule k in one reward model, trained by squared error on the ratings. Nothing is trained
to find the weights. tau -> infinity is the mean, tau -> 0 the rule of least entropy; logarithms to
the base b are those of base e at tau * ln b. A constant rule has H = 0 and would weigh most: the
guard (not in the paper) leaves it out. In a comparison of two responses it cancels anyway, and only
shrinks the scale of r. `normalise` compares rules of different numbers of levels, by H /
ln(levels). Why it should work: a rule rated like a coin is no evidence for a preference. Why it may
not: ratings that are half 0 and half 1 may be informative. The weights are constants of the data
set: `counts` are how often each rule got each level.
"""

import math
from collections.abc import Sequence

import numpy as np

import palaestra as pl

pass

CARD = pl.Card(
    title="ENCORE: entropy-penalised multi-head reward composition",
    paper="arXiv:2503.20995",
    claim="Rules whose ratings have high entropy predict preferences badly, and weighing them down "
    "beats uniform weights.",
    source="three consistent second-hand accounts; base of the logarithm and guards inferred",
    size=pl.Size(
        setting="Llama3.1-8B, 10 rules, about 70k pairs of HH-RLHF and PKU-SafeRLHF, one epoch, lr "
        "2e-5 of the reward model; no policy is trained there",
        model="llama-3.1-8b",
        arguments={"learners.reward.optimiser.lr": 2e-5},
    ),
)
Counts = tuple[tuple[int, ...], ...]  # by rule, by level
# of right, worked, brief, tidy at 0, .25, .5, .75, 1, of 512 answers of the tiny model to `chain`
COUNTS: Counts = (
    (303, 0, 0, 0, 209),
    (378, 0, 0, 0, 134),
    (2, 94, 39, 0, 377),
    (3, 0, 0, 0, 509),
)


def entropies(counts: Sequence[Sequence[float]], base: float = math.e) -> np.ndarray:
    """[R] H_k of how often each rule got each level; 0 ln 0 = 0."""
    found: list[float] = []
    for levels in counts:
        p = np.asarray(levels, np.float64)
        if not (p >= 0).all() or not p.sum():
            raise pl.UserError(
                f"a rule's ratings are counted as {list(levels)}; give numbers of 0 or more, not "
                "all 0"
            )
        p = p[p > 0] / p.sum()
        found.append(float(-(p * np.log(p)).sum() / math.log(base)) + 0.0)
    return np.array(found)


def entropy_weights(
    counts: Sequence[Sequence[float]],
    tau: float = 2.0,
    base: float = math.e,
    guard: bool = True,
    normalise: bool = False,
) -> np.ndarray:
    """[R] w_k, which sum to 1; 0 for a constant rule under the guard."""
    h_R = entropies(counts, base)
    kept_R = h_R > 0 if guard else np.ones(len(h_R), bool)
    if not kept_R.any():
        raise pl.UserError(
            "every rule got the same rating throughout; no weights can be found from entropies"
        )
    h_R = h_R / np.log([max(len(c), 2) for c in counts]) * math.log(base) if normalise else h_R
    w_R = np.where(kept_R, np.exp(-(h_R - h_R[kept_R].min()) / tau), 0.0)
    return w_R / w_R.sum()


def build(counts: Counts = COUNTS, tau: float = 2.0, base: float = math.e) -> pl.Recipe:
    return pl.recipe(
        "multilabel-grpo", weights=tuple(float(w) for w in entropy_weights(counts, tau, base))
    )


# ---- the experiment: rules that rate made-up responses
