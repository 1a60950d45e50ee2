"""The claim of ruscarl: criteria that some answers of a group are told of, ever less."""

from typing import Any

import palaestra as pl
from palaestra.claims.starts import RATES, imitation
from palaestra.recipes.data.ruscarl import build

STEPS = 40  # over which criteria are shown and withdrawn
STARTS = 40  # steps of imitation of answers to criteria
HIDDEN = "rubrics(topics=8)"


def shown_criteria() -> pl.Recipe:
    """How criteria are kept that are shown, all or half of them, or guessed, where none is; a topic
    says nothing there.
    """
    hinted = [pl.Under(pl.rollout.Criteria(share), pl.Demonstrate()) for share in (1.0, 0.5)]
    return imitation(STARTS, pl.links(*hinted, pl.Demonstrate()), prompts=16, lr=1e-3)


def after(rl: pl.Runnable) -> pl.Pipeline:
    sft = pl.warm(shown_criteria(), "rubrics(topics=8,fixed=False)")
    return pl.Pipeline(parts={"sft": sft, "rl": pl.Part(rl, model=pl.Output("sft"))})


def scaffolded(**options: Any) -> pl.Pipeline:
    """8 prompts a step, at temperature 1 and without a cut of the distribution."""
    learned = build(steps=STEPS, temperature=1.0, top_p=1.0, top_k=0, **options)
    return after(pl.vary(learned, schedule=pl.Schedule(prompts=8, steps=STEPS)))


ARMS = {
    "plain": scaffolded(share=0.0),
    "always all": scaffolded(graded=False, fades=False),
    "ever fewer in a group": scaffolded(fades=False),
    "ruscarl": scaffolded(),
    "trained as seen": scaffolded(context="scaffolded"),
    "corrected": scaffolded(context="corrected"),
}

EXPERIMENT = pl.ledger.Experiment(
    words=__file__,
    start=after(pl.ledger.Untrained()),
    arms=ARMS,
    expect=pl.ledger.Greater(
        "ruscarl", "plain", by=0.05, why="less than a fifth of the paper's gain over its start"
    ),
    reasons=(
        pl.ledger.Needs(
            "trained as seen", "training on the bare prompt what was said behind criteria"
        ),
        pl.ledger.Needs("ever fewer in a group", "criteria that are withdrawn"),
    ),
    vetoes={
        "all shown": pl.ledger.Veto(
            pl.ledger.Final("sampled_after.pass@1.mean"), 0.0, against="always all"
        )
    },
    measure=pl.ledger.Final("sampled_after.pass@1.mean"),
    metric="held-out answers that meet all criteria, which are not shown (temperature 1)",
    constants={a: {"rl.optimiser.lr": RATES} for a in ARMS},
    blocks=pl.ledger.TWENTY_SEEDS,
    task=HIDDEN,
    tokens=16_000,
    evaluate=128,
    samples=4,
    seconds=60.0,
    controls={
        "share shown": pl.ledger.Logged("is:guided", last=0),
        "groups with a gradient": pl.ledger.Logged("groups_mixed", last=0),
    },
)
