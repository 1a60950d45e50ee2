"""The claim of incorrect-synthetic-data: RL on incorrect synthetic data: per-step negatives,
advantage-weighted.
"""

from typing import Literal

import palaestra as pl
from palaestra.claims.starts import imitation
from palaestra.recipes.objectives.incorrect_synthetic_data import build


def after_imitation(form: Literal["root", "branch", "whole"]) -> pl.Pipeline:
    """First imitation of workings, until about half of them are right; then pairs."""
    pairs = pl.vary(build(form=form), schedule=pl.Schedule(prompts=4))
    return pl.Pipeline(
        parts={"sft": pl.Part(imitation(35)), "rl": pl.Part(pairs, model=pl.Output("sft"))}
    )


EXPERIMENT = pl.ledger.Experiment(
    words=__file__,
    arms={
        "whole": after_imitation("whole"),
        "per-step": after_imitation("root"),
        "per-step-branch": after_imitation("branch"),
    },
    expect=pl.ledger.Greater("per-step", than="whole"),
    measure=pl.ledger.Final("sampled_after.pass@1.mean"),
    metric="held-out accuracy of sampled answers (temperature 1)",
    task="chain(modulo=9)",
    tokens=60_000,
    evaluate=128,
    samples=4,
    seconds=75,
    controls={
        "accuracy (greedy)": pl.ledger.Final(),
        "accuracy after imitation (greedy)": pl.ledger.Final("parts.sft.accuracy_after.mean"),
        "pairs with steps behind the pit": pl.ledger.Logged("late", last=0),
    },
)
