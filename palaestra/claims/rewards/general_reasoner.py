"""The claim of general-reasoner: General-Reasoner: generative answer verifier."""

import palaestra as pl
from palaestra.recipes.rewards.general_reasoner import build

FOOLED_VERIFIER = pl.Scripted(
    pl.Grader(
        error=0.05, long_error=0.1, long=4, yes="Final Decision: Yes", no="Final Decision: No"
    ),
    name="fooled verifier",
)


EXPERIMENT = pl.Experiment(
    claim="On `add` with references that nobody spells like that, a verifier that errs in 5% of "
    "its decisions (10% for long answers) teaches more than an exact match.",
    arms={
        "exact match": pl.vary(
            build(),
            draw=pl.Respelled(),
            collect=pl.links(pl.Sample(n=8), pl.Score(reward=pl.Verify(pl.exact_match))),
        ),
        "general-reasoner": pl.vary(build(FOOLED_VERIFIER), draw=pl.Respelled()),
        "no length term": pl.vary(build(FOOLED_VERIFIER, penalty=0.0), draw=pl.Respelled()),
        "true verifier": pl.vary(build(), draw=pl.Respelled()),
    },
    expect=pl.Greater("general-reasoner", "exact match"),
    falsified_if="an exact match with the reference is as good or better",
    measure=pl.Final("sampled_after.pass@1.mean"),
    metric="held-out accuracy (temperature 1)",
    task="add",
    tokens=16_000,
    evaluate=128,
    samples=4,
    seconds=25.0,
    controls={
        "passed": pl.Logged("part/pass"),
        "missing": pl.Logged("part/missing"),
        "length": pl.Logged("length"),
    },
    note="A stand-in plays the verifier of 1.5B, and references with decimals that no answer has "
    "(42.0, nine of ten) the free form. The length term charges the two characters' difference to "
    "every right answer alike.",
)
