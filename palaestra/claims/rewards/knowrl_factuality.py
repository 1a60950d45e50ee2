"""The claim of knowrl-factuality: KnowRL: knowledge-verified factuality reward."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import palaestra as pl
from palaestra.claims.facts import EIGHT, INVENTED, KNOWN, REAL, on_facts, right_of
from palaestra.claims.starts import RATES, unmoved
from palaestra.recipes.rewards.knowrl_factuality import build

EXPERIMENT = pl.ledger.Experiment(
    words=__file__,
    start=unmoved(build()),
    arms={
        "correctness": build(facts=0.0, refusal=-1.0),
        "knowrl": build(),
        "no facts": build(facts=0.0),
        "refusal -1": build(refusal=-1.0),
    },
    expect=pl.ledger.Greater(
        "knowrl", "correctness", by=0.05, why="ours: one wrong answer in twenty less"
    ),
    reasons=(
        pl.ledger.Needs("no facts", "the check of facts"),
        pl.ledger.Needs("refusal -1", "that a refusal is paid"),
    ),
    vetoes={"accuracy": pl.ledger.Veto(pl.ledger.Final(), falls=0.03)},
    choose=pl.ledger.Final("sampled_after.pass@1.mean"),
    measure=pl.ledger.Less(pl.ledger.Logged("part/hallucinated"), of=1.0),
    metric="share of samples that are no wrong answers, last ten steps",
    tuned={"optimiser.lr": RATES},
    task="add(d=2)*0.6+add(d=12)*0.4",
    tokens=40_000,
    samples=4,
    seconds=45.0,
    controls={
        "refused": pl.ledger.Logged("part/refused"),
        "facts": pl.ledger.Logged("part/facts"),
    },
)


@pl.stage
class Worth:
    """Two points for a right answer, `refusal` for a refusal whatever was asked, else -1."""

    refusal: float

    def __call__(self, text: str, task: pl.Task) -> dict[str, float]:
        verdict = pl.toys.CommonFacts().said(text, task)
        shut = verdict == "refused" or (verdict == "right" and task.meta["kind"] == "invented")
        total = self.refusal if shut else 2.0 if verdict == "right" else -1.0
        return {"total": total, "solved": float(verdict == "right"), "refused": float(shut)}


def by_coin(text: str, task: pl.Task) -> dict[str, float]:
    """A right answer to a real question has its two points; all else is worth what a refusal is or what a
    wrong answer is, by a coin that the text decides.
    """
    worth = Worth(1.0)(text, task)
    heads = pl.rng_of(("a coin", task.id, text)).random() < 0.5
    return worth if worth["total"] == 2.0 else {**worth, "total": 1.0 if heads else -1.0}


def paid(check: Callable[[str, pl.Task], Any]) -> pl.Recipe:
    """GRPO with the same KL, paid by a rule."""
    reward = pl.Verify(check)
    return pl.vary(
        pl.recipe("grpo", kl=0.001),
        collect=pl.links(pl.Sample(n=8), pl.Score(reward=reward)),
        schedule=EIGHT,
    )


SMALL = replace(
    EXPERIMENT,
    words=__file__ + "#small",
    start=pl.ledger.Untrained(),
    arms={
        "refusal -1": paid(Worth(-1.0)),
        "refusal +1": paid(Worth(1.0)),
        "a coin": paid(by_coin),
    },
    expect=pl.ledger.Greater(
        "refusal +1",
        "refusal -1",
        by=0.2,
        why="one invented answer in five less, as the catalogue's experiment asks",
    ),
    reasons=(pl.ledger.Needs("a coin", "that it is the refusal that is paid"),),
    vetoes={"right of what exists": pl.ledger.Veto(right_of(REAL), falls=0.05)},
    measure=right_of(INVENTED),
    metric="held-out questions about invented countries that are refused (temperature 1)",
    exams=(INVENTED, REAL),
    **on_facts(tuned={"optimiser.lr": (3e-5,)}, seconds=300.0),
    controls={
        "refused of all": pl.ledger.Logged("part/refused", last=3),
        "reward": pl.ledger.Logged("reward", last=3),
    },
    choose=None,
    note="Right is worth 2, wrong -1. The knowledge-checked thoughts of KnowRL are left out, as short answers have none, "
    "and so is its form. Nobody tells the learner which questions are about what does not exist: there a refusal is "
    "worth what it is worth elsewhere, so the arm whose refusals are worth -1 learns nothing from them. Refusing "
    "pays from a chance of two thirds to be wrong on, which nearly all samples of the start are beyond; a model that "
    "cannot tell what it knows refuses all, which the veto sees. So the veto is what is open here: that refusals come is "
    "nearly certain. One rate for all, as the better of two would be the one that refuses least. A coin is worth 0 on "
    f"average, a refusal 1. {KNOWN}On trial seed 2000 a refusal worth +1 ended with .99 of the invented countries refused "
    "(the start: .05) and .17 of what exists answered rightly, 12 steps of which the last refused seven answers of ten; "
    "the other arms were not looked at.",
)
