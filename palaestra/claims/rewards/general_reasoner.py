"""The claim of general-reasoner: General-Reasoner: generative answer verifier."""

import palaestra as pl
from palaestra.claims.short import instead, short
from palaestra.claims.starts import TWO_POINTS
from palaestra.recipes.rewards.general_reasoner import build

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
    return arm(pl.vary(build(), collect=paid))


EXPERIMENT = pl.ledger.Experiment(
    claim="On sums of six digits, half of whose references nobody spells like that, a verifier that errs "
    "in 5% of its decisions (10% for long answers) gives a held-out accuracy at least 2 points above an exact "
    "match.",
    quantity="about 13% on MMLU-Pro above the base models of 7B and 14B; that part of it which the "
    "verifier brings over a rule is not in the abstract or the repository",
    arms={
        "exact match": exact_match(),
        "general-reasoner": arm(build(ERRS)),
        "no length term": arm(build(ERRS, penalty=0.0)),
        "last digit": arm(build(LAST_DIGIT)),
        "true verifier": arm(build()),
    },
    expect=pl.ledger.Greater("general-reasoner", "exact match", by=0.02, why=TWO_POINTS),
    falsified_if="the verifier is less than 2 points above an exact match with the reference",
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
    note="The older claim had nine of ten references in another spelling, so that its baseline was hardly "
    "ever paid and could not learn. Here it is half of them. A stand-in plays the verifier of 1.5B; it "
    "errs twice as often on answers of more than seven characters, which a right one never has, and the length "
    "term charges the two characters' difference of the other spelling to every right answer alike. Looked "
    "at before the declaration, one cell on trial seed 2000: `general-reasoner` at 3e-4 with 14,000 tokens "
    "ended at .42 after six steps, from .09; a like exact match, of another learner, had .61 at the same rate "
    "on that seed. So the baseline can win. The budget was "
    "doubled after that, before any seed that counts, as six steps leave no time for the groups that the "
    "verifier pays in "
    "addition. `exact match` also lacks the charge for a missing answer, which at most 3% of the answers are. "
    "`last digit` pays whatever "
    "ends in the right digit, which one column is enough for. What is learned is mostly to work instead of "
    "guessing. `true verifier` never errs. Cannot show: that long answers deceive the verifier, "
    "unless a run of some ten steps finds them, so `no length term` is expected to tie; "
    "domains whose answers no rule can compare.",
)
