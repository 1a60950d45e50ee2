"""The claim of general-reasoner: General-Reasoner: generative answer verifier."""

import palaestra as pl
from palaestra.claims.short import instead, short
from palaestra.claims.starts import TWO_POINTS
from palaestra.recipes.rewards.general_reasoner import build, embedded

YES, NO = "Final Decision: Yes", "Final Decision: No"
LONG = 7  # characters: a right answer has six or seven
ERRS = pl.Scripted(
    pl.judges.Grader(error=0.05, long_error=0.1, long=LONG, yes=YES, no=NO),
    name="errs on long ones",
)
LAST_DIGIT = pl.Scripted(
    pl.judges.Grader(
        check=pl.judges.matches_last_digit, error=0.05, long_error=0.1, long=LONG, yes=YES, no=NO
    ),
    name="last digit",
)


def arm(recipe: pl.Recipe) -> pl.Recipe:
    """8 prompts a step with 8 answers, half of the references spelt as no answer is."""
    return short(recipe, draw=pl.curriculum.Respelled(0.5))


def exact_match() -> pl.Recipe:
    """The learner, paid by the text alone."""
    paid = pl.links(pl.Sample(n=8), pl.Score(reward=pl.Verify(pl.tasks.exact_match)))
    return arm(pl.vary(embedded(), collect=paid))


EXPERIMENT = pl.ledger.Experiment(
    words=__file__,
    arms={
        "exact match": exact_match(),
        "general-reasoner": arm(build(ERRS)),
        "no length term": arm(build(ERRS, penalty=0.0)),
        "last digit": arm(build(LAST_DIGIT)),
        "true verifier": arm(embedded()),
    },
    expect=pl.ledger.Greater("general-reasoner", "exact match", by=0.02, why=TWO_POINTS),
    reasons=(
        pl.ledger.Needs("no length term", "that the length of the answer is charged"),
        pl.ledger.Needs("last digit", "a verifier that reads the whole answer"),
    ),
    vetoes={"pass@8": pl.ledger.Veto(pl.ledger.Final("sampled_after.pass@8.mean"), falls=0.03)},
    **instead(task="add(d=6)", tokens=30_000, tuning_tokens=14_000, seconds=14.0),
    controls={
        "passed": pl.ledger.Logged("part/pass"),
        "missing": pl.ledger.Logged("part/missing"),
        "difference in length": pl.ledger.Logged("part/difference"),
        "length": pl.ledger.Logged("length"),
    },
)
