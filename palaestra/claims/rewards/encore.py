"""The claim of encore: ENCORE: entropy-penalised multi-head reward composition."""

from collections.abc import Sequence
from typing import Literal

import numpy as np

import palaestra as pl
from palaestra.recipes.rewards.encore import entropies, entropy_weights

Scheme = Literal["uniform", "random", "one rule", "lowest five", "encore", "fitted"]


INFORMATIVE, RANDOM, LEVELS = 4, 6, 5


@pl.stage
class Rules:
    """A program: how often a composition of rules prefers the response that most of four
    informative rules prefer.

    A response is good by an informative rule with probability `good`, and then gets the top level,
    else one of the two lowest. Six further rules rate at random, from peaked to as evenly as
    `spread` says. `constant` adds a rule that always gives the top level.
    """

    scheme: Scheme
    good: float = 0.85
    spread: float = 8.0
    pairs: int = 2000
    tau: float = 2.0
    constant: bool = False
    guard: bool = True

    async def run(self, ctx: pl.Context) -> pl.Result:
        rng = pl.rng_of(("encore", ctx.seed))
        train, test = self._pairs(rng), self._pairs(rng)
        counts = [
            np.bincount(r.ravel(), minlength=LEVELS).tolist() for r in np.moveaxis(train, 2, 0)
        ]
        right = ((test[:, 0] > test[:, 1]) + 0.5 * (test[:, 0] == test[:, 1])).mean(0)
        spread = entropies(counts)
        some = spread > 0
        return pl.Result(
            metrics={
                "accuracy": agreement(test, self._weights(rng, counts, train)),
                "correlation": float(np.corrcoef(spread[some], right[some])[0, 1]),
                "sampled_tokens": 0,
            }
        )

    def _pairs(self, rng: np.random.Generator) -> np.ndarray:
        """[pairs, 2, rules] ratings, the preferred response first."""
        # some pairs are ties, which are left out
        n, spread_R = 4 * self.pairs, np.linspace(0.5, self.spread, RANDOM)
        good = rng.random((n, 2, INFORMATIVE)) < self.good
        informative = np.where(good, LEVELS - 1, rng.integers(0, 2, good.shape))
        p_RL = np.exp(-np.abs(np.arange(LEVELS) - 3) / spread_R[:, None])
        p_RL /= p_RL.sum(1, keepdims=True)
        random = np.stack([rng.choice(LEVELS, (n, 2), p=p) for p in p_RL], 2)
        always = np.full((n, 2, int(self.constant)), LEVELS - 1)
        rated, votes = np.concatenate([informative, random, always], 2), good.sum(2)
        rated = np.where((votes[:, 0] > votes[:, 1])[:, None, None], rated, rated[:, ::-1])
        return rated[votes[:, 0] != votes[:, 1]][: self.pairs]

    def _weights(
        self, rng: np.random.Generator, counts: Sequence[Sequence[float]], train: np.ndarray
    ) -> np.ndarray:
        n = len(counts)
        if self.scheme == "random":
            return rng.dirichlet(np.ones(n))
        if self.scheme == "one rule":
            return np.eye(n)[int(rng.integers(n))]
        if self.scheme == "lowest five":
            return np.isin(np.arange(n), np.argsort(entropies(counts))[:5]) / 5.0
        if self.scheme == "encore":
            return entropy_weights(counts, self.tau, guard=self.guard)
        return fit_weights(train) if self.scheme == "fitted" else np.full(n, 1 / n)


def fit_weights(pairs: np.ndarray, steps: int = 300, lr: float = 0.5) -> np.ndarray:
    """Weights by Bradley-Terry on the pairs, by gradient ascent: what entropies are meant to stand
    in for.
    """
    d_NR, w_R = (pairs[:, 0] - pairs[:, 1]) / (LEVELS - 1), np.zeros(pairs.shape[2])
    for _ in range(steps):
        w_R += lr * (d_NR / (1 + np.exp(d_NR @ w_R))[:, None]).mean(0)
    return w_R


def agreement(pairs: np.ndarray, w_R: np.ndarray) -> float:
    """The share of pairs whose preferred response has the higher weighted rating; ties a half."""
    margin_N = np.round((pairs[:, 0] - pairs[:, 1]) @ w_R, 12)
    return float(np.mean((np.sign(margin_N) + 1) / 2))


EXPERIMENT = pl.ledger.Experiment(
    words=__file__,
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
    start=None,
    illustration=True,
    expect=pl.ledger.Greater("encore", "uniform", by=0.02, why="two thirds of the paper's gain"),
    measure=pl.ledger.Final("accuracy"),
    metric="accuracy on held-out pairs",
    tokens=1,
    evaluate=0,
    seconds=5,
    controls={"correlation of entropy and accuracy": pl.ledger.Final("correlation")},
)
