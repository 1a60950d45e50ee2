"""RLCF: notes that people who usually disagree find helpful, rewarded by a predicted bridging score.

    r = i_n + 0.1 * novelty,   i_n from  rating(u, n) ~ mu + i_u + i_n + f_u * f_n

(arXiv:2506.24118; the factorisation is that of Community Notes, see `palaestra.reward.bridging`). A reward model predicts how
clusters of raters would rate a note; the intercept of these ratings is the reward, and the novelty (1 - similarity to the
group's other notes) works against a style that offends nobody. People's ratings train the reward model only, and decide what
is shown. The factors are those of one fit: a new fit changes all scores and needs a new reward. Known ways to be fooled: a
false claim that both camps like, and colluding raters. `build` trains the predictor beside the policy on the tastes of
`Camps`, which stand for people: both like right answers, one likes workings, the other brevity.
"""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING, Literal

import numpy as np

from palaestra.card import Card
from palaestra.credit.preferences import Rate
from palaestra.ledger.experiment import Experiment, Final, Greater
from palaestra.objective.reward_model import Regression
from palaestra.recipes.base import grpo
from palaestra.reward.bridging import Bridged, Fit, note, twice
from palaestra.reward.labels import Beside, Labels
from palaestra.rollout.collect import Sample, Score, links
from palaestra.runtime.config import vary
from palaestra.step import Learner, Recipe
from palaestra.types import Fault, Group, Result, Reward, rng_of, stage
from palaestra.update import AdamW

if TYPE_CHECKING:
    from palaestra.runtime.context import Context

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
LENGTH, RATERS, NOTES, LR = 6, 60, 32, 0.3


@stage
class Writers:
    """A program: a writer of independent words learns by REINFORCE, normalised in each batch, from the ratings of 60 people.

    70% of the raters are of one camp. The raters' factors come from a fit of their ratings of 200 random notes.
    """

    reward: Literal["mean rating", "bridging", "lowest camp"]
    new: float = 0.0
    plus: float = 0.7
    steps: int = 150

    async def run(self, ctx: Context) -> Result:
        rng = rng_of(("rlcf", ctx.seed))
        camp_U = (np.arange(RATERS) >= round(self.plus * RATERS)).astype(int)
        lenient_U = 0.3 * rng.standard_normal(RATERS)
        rated = rate(rng.integers(0, len(KINDS), (200, LENGTH)), camp_U, lenient_U, rng)
        known, logits = twice(rated, rng), np.zeros((LENGTH, len(KINDS)))
        for _ in range(self.steps):
            p = np.exp(logits) / np.exp(logits).sum(1, keepdims=True)
            notes = written(p, NOTES, rng)
            r_N = self._rewards(notes, rate(notes, camp_U, lenient_U, rng), camp_U, known)
            a_N = (r_N - r_N.mean()) / (r_N.std() + 1e-6)
            logits += LR * (a_N[:, None, None] * (np.eye(len(KINDS))[notes] - p)).mean(0)
        notes = written(np.exp(logits) / np.exp(logits).sum(1, keepdims=True), 400, rng)
        liked = rate(notes, camp_U, lenient_U, rng)
        camps = [float(liked[camp_U == c].mean()) for c in (0, 1)]
        pairs = {(a, b) for n in notes.tolist() for a, b in pairwise(n)}
        return Result(
            metrics={
                "approval": dict(zip(("majority", "minority"), camps, strict=True)) | {"least": min(camps)},
                "words": {k: float((notes == i).mean()) for i, k in enumerate(KINDS)},
                "distinct": len(pairs) / len(KINDS) ** 2,
                "sampled_tokens": 0,
            }
        )

    def _rewards(self, notes: np.ndarray, y_UN: np.ndarray, camp_U: np.ndarray, known: Fit) -> np.ndarray:
        if self.reward == "mean rating":
            r_N = y_UN.mean(0)
        elif self.reward == "lowest camp":
            r_N = np.minimum(*(y_UN[camp_U == c].mean(0) for c in (0, 1)))
        else:
            kept = ~np.isnan(known.f_U)
            r_N = np.array([note(y[kept], known.i_U[kept], known.f_U[kept], known.mu)[0] for y in y_UN.T])
        counts = np.eye(len(KINDS))[notes].sum(1)
        alike = np.minimum(counts[:, None], counts[None]).sum(2) / LENGTH
        np.fill_diagonal(alike, 0.0)
        return r_N + self.new * (1 - alike.max(1))


def written(p: np.ndarray, n: int, rng: np.random.Generator) -> np.ndarray:
    """[n, LENGTH] kinds of words, one distribution a place."""
    return np.stack([rng.choice(len(KINDS), n, p=row) for row in p], 1)


def rate(notes: np.ndarray, camp_U: np.ndarray, lenient_U: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """[U, N] ratings in {0, 1/2, 1}: the taste of the camp for the words, the rater's leniency, and noise."""
    u_CN = TASTE @ np.eye(len(KINDS))[notes].sum(1).T
    u_UN = u_CN[camp_U] + lenient_U[:, None] + 0.5 * rng.standard_normal((len(camp_U), len(notes)))
    return np.where(u_UN > 2, 1.0, np.where(u_UN > 0.5, 0.5, 0.0))


EXPERIMENT = Experiment(
    claim="A writer rewarded by the bridging intercept is approved more by the camp that likes it least than one by mean rating.",
    arms={
        "mean rating": Writers("mean rating"),
        "bridging": Writers("bridging"),
        "bridging and novelty": Writers("bridging", new=0.1),
        "lowest camp": Writers("lowest camp"),
        "even camps, mean rating": Writers("mean rating", plus=0.5),
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
        "distinct pairs of words": Final("distinct"),
    },
    note="Notes of six words, made-up raters, 70% of them of one camp; ratings are read, not predicted. A false claim pleases "
    "both camps nearly as much as a fact: bridging cannot tell them apart.",
)
