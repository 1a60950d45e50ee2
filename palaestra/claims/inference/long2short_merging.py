"""The claim of long2short-merging: Long-to-short reasoning by model merging."""

from dataclasses import replace

import palaestra as pl
from palaestra.recipes.inference.long2short_merging import embedded

SHARES = ((0.6, 0.4), (0.5, 0.5), (0.4, 0.6), (0.3, 0.7))  # of the short model and the long one
SCALES = (0.4, 0.5, 0.7, 1.0)
WHERE = "parts.merged.runnable.how"


def mixed() -> pl.Pipeline:
    """Half of the problems answered by each model, in the place of a merge: on the line but for
    chance.
    """
    return pl.override(embedded("average"), "parts.exam.runnable.mix", 0.5)


def unrelated() -> pl.Pipeline:
    """The average with the short model moved elsewhere among all weights, where it is the same
    function.
    """
    parts = dict(embedded("average").parts)
    models = {"short": pl.Output("elsewhere"), "long": pl.Output("long")}
    moved = pl.run.Merged(("short",), pl.models.PermuteUnits())
    elsewhere = pl.Part(moved, models={"short": pl.Output("short")})
    merged, exam = (replace(parts.pop(n), models=models) for n in ("merged", "exam"))
    return pl.Pipeline(parts={**parts, "elsewhere": elsewhere, "merged": merged, "exam": exam})


def unmerged() -> pl.Pipeline:
    """The run's own model, between the two that it becomes."""
    parts = dict(embedded("average").parts)
    del parts["merged"]
    return pl.Pipeline(parts={**parts, "exam": replace(parts["exam"], model=None)})


EXPERIMENT = pl.ledger.Experiment(
    words=__file__,
    start=unmerged(),
    arms={
        "mixture": mixed(),
        "ties": embedded("ties"),
        "average": embedded("average"),
        "task arithmetic": embedded("task-arithmetic"),
        "dare": embedded("dare"),
        "unrelated": unrelated(),
    },
    expect=pl.ledger.Greater(
        "ties",
        "mixture",
        by=0.08,
        why="half of what keeping the long model's accuracy at half of its length would be, where "
        "the short one is 32 points less accurate",
    ),
    reasons=(pl.ledger.Needs("unrelated", "one basin of the loss"),),
    measure=pl.ledger.Final("above_line"),
    metric="accuracy above the line of the two models in (length, accuracy), greedy",
    constants={
        "ties": {f"{WHERE}.removed": (0.2, 0.8), f"{WHERE}.scale": (0.5, 1.0)},
        "average": {f"{WHERE}.shares": SHARES},
        "unrelated": {f"{WHERE}.shares": SHARES},
        "task arithmetic": {f"{WHERE}.scale": SCALES},
        "dare": {f"{WHERE}.then.scale": SCALES},
    },
    task="add(d=1)+add(d=2)+bool(d=1)+sort(d=1)+add(d=3)+sort(d=3)",
    tokens=10_000,
    evaluate=0,
    seconds=40.0,
    controls={
        "accuracy of the short model": pl.ledger.Final("accuracy.short"),
        "accuracy of the long model": pl.ledger.Final("accuracy.long"),
        "accuracy": pl.ledger.Final("accuracy.merged"),
        "tokens of the short model": pl.ledger.Final("length.short"),
        "tokens of the long model": pl.ledger.Final("length.long"),
        "tokens": pl.ledger.Final("length.merged"),
        "barrier, nats a token": pl.ledger.Final("barrier"),
    },
)
