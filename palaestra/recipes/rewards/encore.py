"""ENCORE: several rule scores made one reward, rules of high entropy counting less.

    H_k = -sum_b p_kb ln p_kb,   w_k = exp(-H_k / tau) / sum_j exp(-H_j / tau),   r = sum_k w_k phi_k        (arXiv:2503.20995)

p_kb is the share of rule k's ratings at level b over the training set, tau = 2, and phi_k in [0, 1] the head of rule k in one
reward model, trained by squared error on the ratings. Nothing is trained to find the weights. tau -> infinity is the mean, tau
-> 0 the rule of least entropy; logarithms to the base b are those of base e at tau * ln b. A constant rule has H = 0 and would
weigh most: the guard (not in the paper) leaves it out. In a comparison of two responses it cancels anyway, and only shrinks
the scale of r. `normalise` compares rules of different numbers of levels, by H / ln(levels). Why it should work: a rule rated
like a coin is no evidence for a preference. Why it may not: ratings that are half 0 and half 1 may be informative. The weights
are constants of the data set: `counts` are how often each rule got each level.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Literal

import numpy as np

from palaestra.card import Card, Size
from palaestra.errors import UserError
from palaestra.ledger.experiment import Experiment, Final, Greater
from palaestra.recipes.rewards import multilabel_grpo
from palaestra.step import Recipe
from palaestra.types import Result, rng_of, stage

if TYPE_CHECKING:
    from palaestra.context import Context

CARD = Card(
    id="encore",
    family="rewards",
    title="ENCORE: entropy-penalised multi-head reward composition",
    paper="arXiv:2503.20995",
    parent="multilabel-grpo",
    claim="Rules whose ratings have high entropy predict preferences badly, and weighing them down beats uniform weights.",
    changes={"collect": "labels are weighed by the entropy of their ratings"},
    source="three consistent second-hand accounts; base of the logarithm and guards inferred",
    paper_scale=(
        "Llama3.1-8B, 10 rules, about 70k pairs of HH-RLHF and PKU-SafeRLHF, one epoch, lr 2e-5 of the reward "
        "model; no policy is trained there"
    ),
    size=Size(model="llama-3.1-8b", arguments={"learners.reward.optimiser.lr": 2e-5}),
)
Counts = tuple[tuple[int, ...], ...]  # by rule, by level
COUNTS: Counts = (  # of right, worked, brief, tidy at 0, .25, .5, .75, 1, of 512 answers of the tiny model to `chain`
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
            raise UserError(f"a rule's ratings are counted as {list(levels)}; give numbers of 0 or more, not all 0")
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
        raise UserError("every rule got the same rating throughout; no weights can be found from entropies")
    h_R = h_R / np.log([max(len(c), 2) for c in counts]) * math.log(base) if normalise else h_R
    w_R = np.where(kept_R, np.exp(-(h_R - h_R[kept_R].min()) / tau), 0.0)
    return w_R / w_R.sum()


def build(counts: Counts = COUNTS, tau: float = 2.0, base: float = math.e) -> Recipe:
    return multilabel_grpo.build(weights=tuple(float(w) for w in entropy_weights(counts, tau, base)))


# ---- the experiment: rules that rate made-up responses

Scheme = Literal["uniform", "random", "one rule", "lowest five", "encore", "fitted"]
INFORMATIVE, RANDOM, LEVELS = 4, 6, 5


@stage
class Rules:
    """A program: how often a composition of rules prefers the response that most of four informative rules prefer.

    A response is good by an informative rule with probability `good`, and then gets the top level, else one of the two
    lowest. Six further rules rate at random, from peaked to as evenly as `spread` says. `constant` adds a rule that always
    gives the top level.
    """

    scheme: Scheme
    good: float = 0.85
    spread: float = 8.0
    pairs: int = 2000
    tau: float = 2.0
    constant: bool = False
    guard: bool = True

    async def run(self, ctx: Context) -> Result:
        rng = rng_of(("encore", ctx.seed))
        train, test = self._pairs(rng), self._pairs(rng)
        counts = [np.bincount(r.ravel(), minlength=LEVELS).tolist() for r in np.moveaxis(train, 2, 0)]
        right = ((test[:, 0] > test[:, 1]) + 0.5 * (test[:, 0] == test[:, 1])).mean(0)
        spread = entropies(counts)
        some = spread > 0
        return Result(
            metrics={
                "accuracy": agreement(test, self._weights(rng, counts, train)),
                "correlation": float(np.corrcoef(spread[some], right[some])[0, 1]),
                "sampled_tokens": 0,
            }
        )

    def _pairs(self, rng: np.random.Generator) -> np.ndarray:
        """[pairs, 2, rules] ratings, the preferred response first."""
        n, spread_R = 4 * self.pairs, np.linspace(0.5, self.spread, RANDOM)  # some pairs are ties, which are left out
        good = rng.random((n, 2, INFORMATIVE)) < self.good
        informative = np.where(good, LEVELS - 1, rng.integers(0, 2, good.shape))
        p_RL = np.exp(-np.abs(np.arange(LEVELS) - 3) / spread_R[:, None])
        p_RL /= p_RL.sum(1, keepdims=True)
        random = np.stack([rng.choice(LEVELS, (n, 2), p=p) for p in p_RL], 2)
        always = np.full((n, 2, int(self.constant)), LEVELS - 1)
        rated, votes = np.concatenate([informative, random, always], 2), good.sum(2)
        rated = np.where((votes[:, 0] > votes[:, 1])[:, None, None], rated, rated[:, ::-1])
        return rated[votes[:, 0] != votes[:, 1]][: self.pairs]

    def _weights(self, rng: np.random.Generator, counts: Sequence[Sequence[float]], train: np.ndarray) -> np.ndarray:
        n = len(counts)
        if self.scheme == "random":
            return rng.dirichlet(np.ones(n))
        if self.scheme == "one rule":
            return np.eye(n)[int(rng.integers(n))]
        if self.scheme == "lowest five":
            return np.isin(np.arange(n), np.argsort(entropies(counts))[:5]) / 5.0
        if self.scheme == "encore":
            return entropy_weights(counts, self.tau, guard=self.guard)
        return fitted(train) if self.scheme == "fitted" else np.full(n, 1 / n)


def fitted(pairs: np.ndarray, steps: int = 300, lr: float = 0.5) -> np.ndarray:
    """Weights by Bradley-Terry on the pairs, by gradient ascent: what entropies are meant to stand in for."""
    d_NR, w_R = (pairs[:, 0] - pairs[:, 1]) / (LEVELS - 1), np.zeros(pairs.shape[2])
    for _ in range(steps):
        w_R += lr * (d_NR / (1 + np.exp(d_NR @ w_R))[:, None]).mean(0)
    return w_R


def agreement(pairs: np.ndarray, w_R: np.ndarray) -> float:
    """The share of pairs whose preferred response has the higher weighted rating; ties a half."""
    margin_N = np.round((pairs[:, 0] - pairs[:, 1]) @ w_R, 12)
    return float(np.mean((np.sign(margin_N) + 1) / 2))


EXPERIMENT = Experiment(
    claim="Weights by entropy predict preferences on more held-out pairs than uniform weights.",
    arms={
        "uniform": Rules("uniform"),
        "random weights": Rules("random"),
        "one random rule": Rules("one rule"),
        "lowest five": Rules("lowest five"),
        "encore": Rules("encore"),
        "encore at tau 0.2": Rules("encore", tau=0.2),
        "fitted": Rules("fitted"),
        "constant rule guarded": Rules("encore", constant=True),
        "constant rule unguarded": Rules("encore", constant=True, guard=False),
        "uniform on peaked noise": Rules("uniform", good=0.5, spread=0.6),
        "encore on peaked noise": Rules("encore", good=0.5, spread=0.6),
    },
    expect=Greater("encore", "uniform"),
    falsified_if="uniform weights are within two points of weights by entropy, or better",
    measure=Final("accuracy"),
    metric="accuracy on held-out pairs",
    tokens=1,
    evaluate=0,
    seconds=5,
    controls={"correlation of entropy and accuracy": Final("correlation")},
    note="Ratings are made up: four informative rules that most responses fulfil, six that rate at random. With peaked "
    "noise half of the responses fulfil an informative rule and the others rate nearly alike: the weak point of the rationale.",
)
