"""RLCF: notes that people who usually disagree find helpful, rewarded by a predicted bridging score.

    r = i_n + 0.1 * novelty,   i_n from  rating(u, n) ~ mu + i_u + i_n + f_u * f_n

(arXiv:2506.24118; the factorisation is that of Community Notes, see `palaestra.rewards.bridging`). A reward model predicts how
clusters of raters would rate a note; the intercept of these ratings is the reward, and the novelty (1 - similarity to the
group's other notes) works against a style that offends nobody. People's ratings train the reward model only, and decide what
is shown. The factors are those of one fit: a new fit changes all scores and needs a new reward. Known ways to be fooled: a
false claim that both camps like, and colluding raters. `build` trains the predictor beside the policy on the tastes of
`Camps`, which stand for people: both like right answers, one likes workings, the other brevity.
"""

from __future__ import annotations

from itertools import product
from math import factorial, prod
from typing import TYPE_CHECKING, Literal

import numpy as np

from palaestra.card import Card
from palaestra.credit.preferences import Rate
from palaestra.errors import Fault
from palaestra.ledger.experiment import Experiment, Final, Greater
from palaestra.objective.reward_model import Regression
from palaestra.recipes.base import grpo
from palaestra.rewards.bridging import Bridged, Fit, note, twice
from palaestra.rewards.labels import Beside, Labels
from palaestra.rollout.collect import Sample, Score, links
from palaestra.step import Learner, Recipe
from palaestra.types import Group, Result, Reward, rng_of, stage
from palaestra.update import AdamW
from palaestra.values import vary

if TYPE_CHECKING:
    from palaestra.context import Context

CARD = Card(
    id="rlcf",
    family="rewards",
    title="RLCF: reinforcement learning from community feedback (Community Notes)",
    paper="arXiv:2506.24118",
    parent="grpo",
    claim="Rewarding what opposed raters agree on gives notes that every camp approves; the mean rating serves the majority.",
    changes={
        "collect": "the reward is the bridging intercept of predicted ratings, plus novelty",
        "learners": "a model of what each cluster of raters would say",
    },
    source="released code of Community Notes for the factorisation; the use of the intercept second-hand, novelty inferred",
    paper_scale="a position paper: no training results",
)
CLUSTERS = ("plus", "minus")


@stage
class Camps:
    """What two camps say of an answer: half for being right, half for its working (plus) or its brevity (minus)."""

    async def __call__(self, ctx: Context, group: Group) -> list[Reward | Fault]:
        found = await Labels()(ctx, group)
        return [
            r if isinstance(r, Fault) else self._said(r.parts["right"], r.parts["worked"], r.parts["brief"])
            for r in found
        ]

    def _said(self, right: float, worked: float, brief: float) -> Reward:
        plus, minus = (right + worked) / 2, (right + brief) / 2
        return Reward(total=(plus + minus) / 2, parts={"plus": plus, "minus": minus})


def build(new: float = 0.1, sizes: tuple[int, int] = (10, 10)) -> Recipe:
    parent, targets = grpo.build(), tuple(f"rated/{c}" for c in CLUSTERS)
    predictor = Learner(
        credit=Rate(targets=targets),
        objective=Regression(CLUSTERS, targets, squash=True),
        heads=CLUSTERS,
        optimiser=AdamW(lr=1e-3),
    )
    reward = Bridged(CLUSTERS, sizes=sizes, new=new)
    collect = links(Sample(n=8), Score(reward=reward, shadow=True), Beside(Camps(), "rated"))
    return vary(parent, collect=collect, learners={**parent.learners, "reward": predictor})


# ---- the experiment: notes of six words, two camps of raters

KINDS = ("fact", "plus slogan", "minus slogan", "filler", "false claim")
TASTE = np.array([[0.3, 1.5, -1.5, 0.0, 0.25], [0.3, -1.5, 1.5, 0.0, 0.25]])  # of a camp for each kind of word
LENGTH, RATERS, BETA = 6, 60, 0.02
# All notes, as counts of kinds.
NOTES = np.array([c for c in product(range(LENGTH + 1), repeat=len(KINDS)) if sum(c) == LENGTH])


@stage
class Writers:
    """A program: the best writer under a KL penalty, pi ~ pi_0 exp(r / beta), for a reward of the ratings of 60 people.

    pi_0 draws six words evenly. A share `plus` of the raters is of one camp. Their factors come from a fit of their ratings of
    200 notes of pi_0.
    """

    reward: Literal["mean rating", "bridging", "lowest camp"]
    plus: float = 0.7

    async def run(self, ctx: Context) -> Result:
        rng = rng_of(("rlcf", ctx.seed))
        camp_U = (np.arange(RATERS) >= round(self.plus * RATERS)).astype(int)
        lenient_U = 0.3 * rng.standard_normal(RATERS)
        start_N = np.array([factorial(LENGTH) / prod(map(factorial, n)) for n in NOTES.tolist()])
        start_N /= start_N.sum()
        known = twice(rate(NOTES[rng.choice(len(NOTES), 200, p=start_N)], camp_U, lenient_U, rng), rng)
        r_N = self._rewards(rate(NOTES, camp_U, lenient_U, rng), camp_U, known)
        pi_N = start_N * np.exp((r_N - r_N.max()) / BETA)
        pi_N /= pi_N.sum()
        liked_UN = rate(NOTES, camp_U, lenient_U, rng)
        camps = [float(liked_UN[camp_U == c].mean(0) @ pi_N) for c in (0, 1)]
        words = dict(zip(KINDS, (pi_N @ NOTES / LENGTH).tolist(), strict=True))
        approval = {"majority": camps[0], "minority": camps[1], "least": min(camps)}
        return Result(metrics={"approval": approval, "words": words, "sampled_tokens": 0})

    def _rewards(self, y_UN: np.ndarray, camp_U: np.ndarray, known: Fit) -> np.ndarray:
        if self.reward == "mean rating":
            return y_UN.mean(0)
        if self.reward == "lowest camp":
            return np.minimum(*(y_UN[camp_U == c].mean(0) for c in (0, 1)))
        kept = ~np.isnan(known.f_U)
        return np.array([note(y[kept], known.i_U[kept], known.f_U[kept], known.mu)[0] for y in y_UN.T])


def rate(notes: np.ndarray, camp_U: np.ndarray, lenient_U: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """[U, N] ratings in {0, 1/2, 1}: the taste of the camp for the words, the rater's leniency, and noise."""
    u_UN = (TASTE @ notes.T)[camp_U] + lenient_U[:, None] + 0.5 * rng.standard_normal((len(camp_U), len(notes)))
    return np.where(u_UN > 2, 1.0, np.where(u_UN > 0.5, 0.5, 0.0))


EXPERIMENT = Experiment(
    claim="A writer rewarded by the bridging intercept is approved more by the camp that likes it least than one by mean rating.",
    arms={
        "mean rating": Writers("mean rating"),
        "bridging": Writers("bridging"),
        "lowest camp": Writers("lowest camp"),
        "even camps by mean rating": Writers("mean rating", plus=0.5),
    },
    expect=Greater("bridging", "mean rating", by=0.05),
    falsified_if="the lower approval of the two camps gains less than five points by bridging",
    measure=Final("approval.least"),
    metric="mean rating by the camp that approves less",
    tokens=1,
    evaluate=0,
    seconds=10,
    controls={
        "facts": Final("words.fact"),
        "false claims": Final("words.false claim"),
        "majority slogans": Final("words.plus slogan"),
    },
    note="Notes of six words, made-up raters, 70% of one camp. Ratings are read, not predicted; the best writer is computed. "
    "A false claim pleases both camps nearly as much as a fact: bridging cannot tell them apart.",
)
