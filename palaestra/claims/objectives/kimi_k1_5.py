"""The claim of kimi-k1.5: mirror descent on whole answers with a length reward."""

from dataclasses import replace
from itertools import product
from typing import Any, ClassVar

import numpy as np

import palaestra as pl
from palaestra.claims.facts import EIGHT, REAL, on_facts
from palaestra.claims.starts import RATES, unmoved
from palaestra.recipes.objectives.kimi_k1_5 import build


@pl.stage
class MixedLengthReward:
    """The length rewards of each group, given to its right answers, and to its wrong ones, in
    another order: the same sizes, and no reason to be brief.
    """

    weight: Any = 1.0
    spreads: ClassVar[bool] = True  # groups with one reward as well

    def __call__(self, x: pl.Values, table: pl.Table) -> pl.Values:
        x = table.lift(x, "episode")
        bonus_E = pl.credit.LengthReward(self.weight)(x, table).x_N - x.x_N
        right_E = table.reward_E >= 1
        for g, right in product(np.unique(table.group_E), (True, False)):
            mine = np.flatnonzero((table.group_E == g) & (right_E == right))
            rng = pl.rng_of(("mixed lengths", *table.lengths_E[mine].tolist()))
            bonus_E[mine] = bonus_E[rng.permutation(mine)]
        return pl.Values(level="episode", x_N=x.x_N + bonus_E)


def placebo(length_from: int = 20) -> pl.Recipe:
    """`build(length=0.5)` with the length rewards mixed up."""
    mixed = MixedLengthReward(pl.Jump(0.0, 0.5, length_from))
    return pl.vary(build(), credit=pl.Chain((mixed, pl.Center("group")), unit="group"))


EXPERIMENT = pl.ledger.Experiment(
    claim="A length reward that starts after 20 steps makes right answers shorter by at least a "
    "token, and costs at most 3 points of accuracy.",
    quantity="short answers of nearly the accuracy of long ones (60.8 on AIME within short "
    "chains); the length reward's own part is not given",
    start=unmoved(build()),
    arms={
        "mirror-descent": build(),
        "length-late": build(length=0.5),
        "length-at-once": build(length=0.5, length_from=0),
        "length-mixed-up": placebo(),
    },
    expect=pl.ledger.Greater(
        "length-late",
        than="mirror-descent",
        by=1.0,
        why="a token, about a tenth of a right answer without the length reward",
    ),
    falsified_if="right answers are no shorter than without the length reward, or fewer are right",
    reasons=(pl.ledger.Needs("length-mixed-up", "that the reward goes to the brief answers"),),
    vetoes={
        "sampled accuracy": pl.ledger.Veto(pl.ledger.Final("sampled_after.pass@1.mean"), falls=0.03)
    },
    choose=pl.ledger.Final("sampled_after.pass@1.mean"),
    measure=pl.ledger.Less(pl.ledger.Logged("length_right")),
    metric="tokens of a right answer, last 10 steps, with a minus",
    tuned={"optimiser.lr": RATES},
    task="sort",
    tokens=80_000,
    samples=4,
    seconds=80,
    note="On `sort` an answer that is right may be short, guessed at once, or long, worked out, "
    "and few of the short ones are wrong; the shortest right one has 8 tokens, which both arms "
    "with a length reward reach, so the size of the effect is that of this floor below the other "
    "arm. Lengths are those of the training answers, each problem seen once. A first run on "
    "`chain`, where all right answers have one length, decided nothing (27.7 against 27.8 tokens).",
)


def of_facts(recipe: pl.Recipe) -> pl.Recipe:
    return pl.vary(recipe, schedule=EIGHT)


SMALL = replace(
    EXPERIMENT,
    claim="On questions of common knowledge that have an answer, by SmolLM2-135M-Instruct, a length reward makes right "
    "answers shorter by at least two tokens, and accuracy does not fall by more than 5 points.",
    start=unmoved(of_facts(build())),
    arms={
        "mirror-descent": of_facts(build()),
        "length-at-once": of_facts(build(length=0.5, length_from=0)),
        "length-mixed-up": of_facts(placebo(length_from=0)),
    },
    expect=pl.ledger.Greater(
        "length-at-once",
        than="mirror-descent",
        by=2.0,
        why="a fifth of an answer of some ten tokens",
    ),
    falsified_if="right answers are less than two tokens shorter, or accuracy falls by more than 5 points",
    vetoes={
        "sampled accuracy": pl.ledger.Veto(pl.ledger.Final("sampled_after.pass@1.mean"), falls=0.05)
    },
    measure=pl.ledger.Less(pl.ledger.Logged("length_right", last=5)),
    metric="tokens of a right training answer, last 5 steps, with a minus",
    **on_facts(task=REAL, tuned={"optimiser.lr": (3e-5,)}),
    note="Nothing that is asked is unknown, so `unknown`, which is brief, is right nowhere. The length reward from the "
    "first step, as the tokens last for some twelve; each batch is four minibatches with fresh moments, as in the paper, so "
    "these are four times as many updates. A right answer can be a whole sentence, a sentence that goes on in the same "
    "line, or the bare word. In a group without a right answer the length reward prefers the brief ones all the same, where "
    "plain mirror descent has nothing to learn; in a group with one right answer the mixed-up reward is its own. Tokens are "
    "equal, so whoever answers briefly makes more updates. 35 of the 256 facts are held out, the same for all seeds. "
    "Looked at before the declaration, on trial seed 2000: `mirror-descent`, whose ten batches came from .13 to .69 right "
    "and from 9 tokens of a right answer to 17, as answers ran on to their limit. The other arms were not looked at.",
)
