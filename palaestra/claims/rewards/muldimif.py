"""The claim of muldimif: Multi-dimensional constraint framework for instruction following."""

from collections.abc import Callable
from typing import Any

import palaestra as pl
from palaestra.claims.sentences import FEW, sentences
from palaestra.recipes.rewards.muldimif import embedded

EXPERIMENT = pl.ledger.Experiment(
    words=__file__,
    arms={
        "all or nothing": embedded(every=True, n=8, temperature=1.0),
        "count": embedded(n=8, temperature=1.0),
    },
    expect=pl.ledger.Greater("count", "all or nothing"),
    measure=pl.ledger.Final(),
    metric="held-out answers that keep all constraints (greedy)",
    task="bool(d=6)",
    tokens=30_000,
    seconds=40.0,
    controls={
        "share kept": pl.ledger.Logged("part/share"),
        "mixed": pl.ledger.Logged("groups_mixed"),
        "before": pl.ledger.Final("before.mean"),
    },
)


def count(text: str, task: pl.Task) -> dict[str, float]:
    """A point for the sentence, and one for each constraint; nothing where it is none."""
    is_sentence, kept = pl.toys.ConstraintTasks().kept(text, task)
    return {
        "total": float(is_sentence) * (1 + sum(kept)),
        "solved": float(is_sentence and all(kept)),
    }


def all_kept(text: str, task: pl.Task) -> float:
    is_sentence, kept = pl.toys.ConstraintTasks().kept(text, task)
    return float(is_sentence and all(kept))


def first_alone(text: str, task: pl.Task) -> dict[str, float]:
    """As many points as `count` has, all of them for the first constraint."""
    is_sentence, kept = pl.toys.ConstraintTasks().kept(text, task)
    return {
        "total": float(is_sentence) * (1 + 2 * kept[0]),
        "solved": float(is_sentence and all(kept)),
    }


def rewarded(check: Callable[[str, pl.Task], Any]) -> pl.Recipe:
    paid = pl.links(pl.Sample(n=8), pl.Score(reward=pl.Verify(check)))
    return pl.vary(pl.recipe("grpo"), collect=paid, schedule=FEW)


SMALL = pl.ledger.Experiment(
    words=__file__ + "#small",
    arms={
        "all or nothing": rewarded(all_kept),
        "count": rewarded(count),
        "first alone": rewarded(first_alone),
    },
    expect=pl.ledger.Greater(
        "count",
        "all or nothing",
        by=0.03,
        why="three points, the least that a reader of the paper's tables would act on",
    ),
    reasons=(pl.ledger.Needs("first alone", "that every constraint counts"),),
    measure=pl.ledger.Final("sampled_after.pass@1.mean"),
    metric="held-out sentences about their topic that keep both constraints (temperature 1)",
    **sentences(task="constraints(constraints=2)"),
    controls={
        "groups with both kinds": pl.ledger.Logged("groups_mixed", last=0),
        "length": pl.ledger.Logged("length"),
    },
)
