"""The claim of modomodo: a mixture that short runs predict, against all domains alike."""

from dataclasses import replace
from typing import Any

import palaestra as pl
from palaestra.claims.starts import RATES, imitation
from palaestra.recipes.data.modomodo import Choice, build

TASK = "+".join(f"chain(modulo={m},operands=(5,6),max_tokens=96)" for m in (7, 9, 11))


def start_of(runnable: pl.Runnable) -> dict[str, pl.Part]:
    """12 steps of imitation of the three domains together."""
    return {"sft": pl.warm(imitation(12)), "rl": pl.Part(runnable, model=pl.Output("sft"))}


def predicted(choose: Choice, **options: Any) -> pl.Pipeline:
    """Seven pilots that all arms of a seed share, then the run; 8 prompts a step with 4 answers."""
    small = pl.vary(
        pl.recipe("grpo"),
        collect=pl.links(pl.Sample(n=4), pl.Score()),
        schedule=pl.Schedule(prompts=8, steps=100),
    )
    parts = build(choose, recipe=small, **options).parts
    begun = {n: replace(p, model=pl.Output("sft")) for n, p in parts.items()}
    return pl.Pipeline(parts={"sft": pl.warm(imitation(12)), **begun})


ARMS = {
    "uniform": predicted("uniform"),
    "predicted": predicted("quadratic"),
    "linear": predicted("linear"),
    "best pilot": predicted("best pilot"),
    "shuffled": predicted("shuffled"),
}

EXPERIMENT = pl.ledger.Experiment(
    words=__file__,
    start=pl.Pipeline(parts=start_of(pl.ledger.Untrained())),
    arms=ARMS,
    expect=pl.ledger.Greater(
        "predicted", "uniform", by=0.02, why="two fifths of the paper's gain over uniform"
    ),
    reasons=(
        pl.ledger.Needs("shuffled", "scores that belong to their mixtures"),
        pl.ledger.Needs("linear", "a surrogate with curvature"),
        pl.ledger.Needs("best pilot", "a prediction beyond the pilots"),
    ),
    measure=pl.ledger.Final("sampled_after.pass@1.mean"),
    metric="held-out accuracy over the three domains (temperature 1)",
    constants={a: {"rl.recipe.learners.policy.optimiser.lr": RATES[1:]} for a in ARMS},
    task=TASK,
    tokens=15_000,
    evaluate=255,
    samples=4,
    seconds=200.0,
    not_testable="pilots that learn more than their scores differ by chance. In as long as a cell of "
    "eight runs allows, ten steps of 8 prompts with 4 answers, neither of the two looked at rose above the start (see the "
    "note), so seven scores would say nothing of mixtures, and the surrogates of all arms would be "
    "fitted to chance. Domains that this model learns fast, such as sums, formulas and lists, share "
    "one habit, so that any mixture of them is expected to tie. Ten times the steps for each of seven pilots, for "
    "ten seeds, would be the least; with your own model: `palaestra train modomodo --task A+B+C`.",
    controls={
        "score that is predicted": pl.ledger.Final("predicted"),
        "R2 of a line, each pilot from the others": pl.ledger.Final("r2_linear"),
        "R2 of a quadratic": pl.ledger.Final("r2_quadratic"),
    },
)
