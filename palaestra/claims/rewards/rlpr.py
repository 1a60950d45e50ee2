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
    claim="On sums of six digits, half of whose references nobody spells like that, the policy's own "
    "mean probability of the reference gives a held-out accuracy at least 3 points above the product of "
    "the same probabilities, as VeriFree has it.",
    quantity="7.6 points on TheoremQA and 7.5 on Minerva above VeriFree, whose reward is the product of "
    "the reference's probabilities; 1.6 points on average above a verifier model's reward",
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
    falsified_if="the mean is less than 3 points above the product",
    reasons=(pl.ledger.Needs("no baseline", "what the start gives without reasoning, taken off"),),
    vetoes={"pass@8": pl.ledger.Veto(pl.ledger.Final("sampled_after.pass@8.mean"), falls=0.03)},
    **instead(task="add(d=6)", tokens=30_000, tuning_tokens=14_000, seconds=14.0),
    controls={
        "reward": pl.ledger.Logged("reward"),
        "gain over no reasoning": pl.ledger.Logged("part/gain"),
        "length": pl.ledger.Logged("length"),
        "groups drawn in a step": pl.ledger.Logged("groups", last=0),
    },
    note="The older claim had nine of ten references in another spelling, so that its baseline was hardly "
    "ever paid and could not learn. Here it is half of them: the text is paid on the others, and a "
    "group whose reference nobody writes teaches it nothing. Looked at before the declaration, on trial seeds "
    "(1000 and 1001 to choose rates, 2000 and 2100), by the command that makes trials: with 14,000 tokens, "
    "six to fourteen steps, `exact match` ended at .61 and .61 at 3e-4 and `rlpr` at .36 and .41 at 1e-4; "
    "the start solves .09. So matching half of the references was ahead, and stays as an arm; the paper's "
    "figures are over the "
    "product, which is compared now, with twice the tokens. The "
    "reward of `rlpr` rises in every run, mostly with the length: what is learned is to work instead of guessing. "
    "`filtered` has the paper's filter, with its times scaled from a run of hundreds of steps to one of twenty; it pays "
    "for the groups that it throws away, which among eight cost a second draw, so the others are without it. "
    "`verifier` compares values and is what a perfect rule would give. Digits are bytes here, and the "
    "two bytes that no answer has stand at the end of half of the references; a larger model spells one "
    "answer in many ways, which is where the mean is to help. Cannot show: answers of several words; "
    "benchmarks out of the trained domain.",
)
