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
    words=__file__,
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
)
