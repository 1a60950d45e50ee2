"""The claim of rlcf: RLCF: reinforcement learning from community feedback (Community Notes)."""

from itertools import product
from math import factorial, prod
from typing import Literal

import numpy as np

import palaestra as pl

KINDS = ("fact", "plus slogan", "minus slogan", "filler", "false claim")


# of a camp for each kind of word
TASTE = np.array([[0.3, 1.5, -1.5, 0.0, 0.25], [0.3, -1.5, 1.5, 0.0, 0.25]])


LENGTH, RATERS, KL = 6, 60, 3.0


# All notes, as counts of kinds.
NOTES = np.array([c for c in product(range(LENGTH + 1), repeat=len(KINDS)) if sum(c) == LENGTH])


@pl.stage
class Writers:
    """A program: the best writer within `KL` nats of pi_0, pi ~ pi_0 exp(r / beta), for a reward of
    the ratings of 60 people.

    pi_0 draws six words evenly. A share `plus` of the raters is of one camp. Their factors come
    from a fit of their ratings of 200 notes of pi_0.
    """

    reward: Literal["mean rating", "bridging", "lowest camp"]
    plus: float = 0.7

    async def run(self, ctx: pl.Context) -> pl.Result:
        rng = pl.rng_of(("rlcf", ctx.seed))
        camp_U = (np.arange(RATERS) >= round(self.plus * RATERS)).astype(int)
        lenient_U = 0.3 * rng.standard_normal(RATERS)
        start_N = np.array([factorial(LENGTH) / prod(map(factorial, n)) for n in NOTES.tolist()])
        start_N /= start_N.sum()
        known = pl.rewards.fit_twice(
            rate(NOTES[rng.choice(len(NOTES), 200, p=start_N)], camp_U, lenient_U, rng), rng
        )
        r_N = self._rewards(rate(NOTES, camp_U, lenient_U, rng), camp_U, known)
        pi_N = best_within(KL, start_N, r_N)
        liked_UN = rate(NOTES, camp_U, lenient_U, rng)
        camps = [float(liked_UN[camp_U == c].mean(0) @ pi_N) for c in (0, 1)]
        words = dict(zip(KINDS, (pi_N @ NOTES / LENGTH).tolist(), strict=True))
        approval = {"majority": camps[0], "minority": camps[1], "least": min(camps)}
        return pl.Result(metrics={"approval": approval, "words": words, "sampled_tokens": 0})

    def _rewards(self, y_UN: np.ndarray, camp_U: np.ndarray, known: pl.rewards.Fit) -> np.ndarray:
        if self.reward == "mean rating":
            return y_UN.mean(0)
        if self.reward == "lowest camp":
            return np.minimum(*(y_UN[camp_U == c].mean(0) for c in (0, 1)))
        kept = ~np.isnan(known.f_U)
        return np.array(
            [
                pl.rewards.fit_note(y[kept], known.i_U[kept], known.f_U[kept], known.mu)[0]
                for y in y_UN.T
            ]
        )


def best_within(kl: float, start_N: np.ndarray, r_N: np.ndarray) -> np.ndarray:
    """[N] start * exp(r / beta), with the beta at which its KL from the start is `kl` nats."""

    def tilted(beta: float) -> tuple[np.ndarray, float]:
        pi_N = start_N * np.exp((r_N - r_N.max()) / beta)
        pi_N /= pi_N.sum()
        there = pi_N > 0
        return pi_N, float(pi_N[there] @ np.log(pi_N[there] / start_N[there]))

    low, high = 1e-5, 1e3
    for _ in range(100):
        middle = (low * high) ** 0.5
        low, high = (middle, high) if tilted(middle)[1] > kl else (low, middle)
    return tilted(high)[0]


def rate(
    notes: np.ndarray, camp_U: np.ndarray, lenient_U: np.ndarray, rng: np.random.Generator
) -> np.ndarray:
    """[U, N] ratings in {0, 1/2, 1}: the taste of the camp for the words, the rater's leniency, and
    noise.
    """
    u_UN = (
        (TASTE @ notes.T)[camp_U]
        + lenient_U[:, None]
        + 0.5 * rng.standard_normal((len(camp_U), len(notes)))
    )
    return np.where(u_UN > 2, 1.0, np.where(u_UN > 0.5, 0.5, 0.0))


EXPERIMENT = pl.ledger.Experiment(
    words=__file__,
    arms={
        "mean rating": Writers("mean rating"),
        "bridging": Writers("bridging"),
        "lowest camp": Writers("lowest camp"),
        "even camps by mean rating": Writers("mean rating", plus=0.5),
    },
    start=None,
    illustration=True,
    expect=pl.ledger.Greater("bridging", "mean rating", by=0.05, why="five points of the approval"),
    measure=pl.ledger.Final("approval.least"),
    metric="mean rating by the camp that approves less",
    tokens=1,
    evaluate=0,
    seconds=10,
    controls={
        "facts": pl.ledger.Final("words.fact"),
        "false claims": pl.ledger.Final("words.false claim"),
        "majority slogans": pl.ledger.Final("words.plus slogan"),
    },
)
