"""The claim of rlpr: RLPR: probability reward without verifiers."""

from typing import Any

import palaestra as pl
from palaestra.claims.short import instead, short
from palaestra.recipes.rewards.rlpr import Spread, build


def arm(recipe: pl.Recipe) -> pl.Recipe:
    """8 prompts a step with 8 answers, half of the references spelt as no answer is."""
    return short(recipe, draw=pl.curriculum.Respelled(0.5))


def probability(**options: Any) -> pl.Recipe:
    """RLPR without its filter."""
    return arm(build(coefficient=0.0, **options))


def filtered() -> pl.Recipe:
    """Batches of six groups with a filter that begins at the fourth step, as a run has some twenty."""
    return pl.vary(arm(build()), pool=Spread(0.5, size=6, collect_from=2, start=4))


def verified(check: pl.Verify) -> pl.Recipe:
    """RLPR's learner, paid by a rule."""
    paid = pl.links(pl.Sample(n=8), pl.Score(reward=check))
    return pl.vary(arm(build(coefficient=0.0)), collect=paid)


EXPERIMENT = pl.ledger.Experiment(
    words=__file__,
    arms={
        "exact match": verified(pl.Verify(pl.tasks.exact_match)),
        "rlpr": probability(),
        "product": probability(how="product"),
        "no baseline": probability(baseline=""),
        "filtered": filtered(),
        "verifier": verified(pl.Verify(pl.rewards.Exact())),
    },
    expect=pl.ledger.Greater(
        "rlpr", "product", by=0.03, why="less than half of the paper's gains over VeriFree"
    ),
    reasons=(pl.ledger.Needs("no baseline", "what the start gives without reasoning, taken off"),),
    vetoes={"pass@8": pl.ledger.Veto(pl.ledger.Final("sampled_after.pass@8.mean"), falls=0.03)},
    **instead(task="add(d=6)", tokens=30_000, tuning_tokens=14_000, seconds=14.0),
    controls={
        "reward": pl.ledger.Logged("reward"),
        "gain over no reasoning": pl.ledger.Logged("part/gain"),
        "length": pl.ledger.Logged("length"),
        "groups drawn in a step": pl.ledger.Logged("groups", last=0),
    },
)
