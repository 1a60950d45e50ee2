"""The claim of guide: ratios to the prompt that was seen, for the prompt that is trained."""

from typing import Any

import palaestra as pl
from palaestra.claims.starts import RATES
from palaestra.recipes.data.guide import MARK, build


def told(**options: Any) -> pl.Recipe:
    """4 answers to each of 8 prompts; who is all wrong hears the right answer, unless `options`
    say otherwise.
    """
    setting: dict[str, Any] = {"guidance": "answer", "n": 4, "size": 8, **options}
    learned = build(**setting)
    return pl.vary(learned, schedule=pl.Schedule(prompts=8, steps=200, max_age=1))


def unguided() -> pl.Recipe:
    return pl.vary(told(), collect=pl.links(pl.Sample(n=4), pl.Score()))


EXPERIMENT = pl.ledger.Experiment(
    claim="On sums of four digits, where a prompt that all answers miss is told the right one, Guide's "
    "weights to the told prompt end at least 3 points of held-out accuracy above the same updates with "
    "weights to the bare one.",
    quantity="up to 4% on average over GRPO on maths, with ablations of the weights",
    arms={
        "grpo": unguided(),
        "guide": told(),
        "uncorrected": told(correction="none"),
        "as it was seen": told(context="guided"),
        "always": told(every=True),
        "verdict": told(guidance="verdict"),
    },
    expect=pl.ledger.Greater(
        "guide", "uncorrected", by=0.03, why="three of the four points that the paper gains at most"
    ),
    falsified_if="without the correction the accuracy is no more than 3 points lower, or GRPO without "
    "guidance is better",
    reasons=(
        pl.ledger.Needs("as it was seen", "learning for the bare prompt"),
        pl.ledger.Needs("always", "guidance only where all answers fail"),
    ),
    vetoes={
        "without guidance": pl.ledger.Veto(
            pl.ledger.Final("sampled_after.pass@1.mean"), falls=0.0, against="grpo"
        )
    },
    measure=pl.ledger.Final("sampled_after.pass@1.mean"),
    metric="held-out accuracy without guidance (temperature 1)",
    tuned={"optimiser.lr": RATES},
    blocks=pl.ledger.TWENTY_SEEDS,
    task="add(d=4)",
    tokens=8_000,
    evaluate=128,
    samples=8,
    seconds=60.0,
    controls={
        "guided tokens": pl.ledger.Logged(f"is:{MARK}", last=0),
        "weight of a guided token": pl.ledger.Logged(f"{MARK}/shaped", last=0),
        "groups with a gradient": pl.ledger.Logged("groups_mixed", last=0),
    },
    note="Only a told answer makes a gap to correct in this model. Looked at on trial seeds, 24 tasks x 4: "
    "of 57 right answers behind `wrong, it is X` 19 are copies without working, whose log-prob behind "
    "the bare prompt is 6.1 nats lower in the median (56% of their tokens by more than 0.18), and worked "
    "ones 0.4 nats; behind the verdict alone nothing is copied. With five or six digits too little is copied "
    "(2 of 9 and none), and hints make no gap. Also one cell an arm, rate 1e-4, 12,000 tokens: start .30, grpo .89, "
    "guide .82, uncorrected .83. So GRPO nears the ceiling there, which is why the budget is smaller, and "
    "the veto against it may well speak: what is told here is the answer, and a copy teaches no sum. "
    "This decides whether the weights matter where there is a gap; it cannot show what a hint does for a "
    "model that reads it. About a third of the prompts are all wrong in four answers at the start. "
    "gamma is the quantile of a whole batch.",
)
