"""The claim of muldimif: Multi-dimensional constraint framework for instruction following."""

from collections.abc import Callable
from typing import Any

import palaestra as pl
from palaestra.claims.sentences import FEW, sentences
from palaestra.recipes.rewards.muldimif import build

EXPERIMENT = pl.ledger.Experiment(
    claim="With the number of constraints kept as the reward, all are kept more often than with "
    "all-or-nothing.",
    arms={
        "all or nothing": build(every=True, n=8, temperature=1.0),
        "count": build(n=8, temperature=1.0),
    },
    expect=pl.ledger.Greater("count", "all or nothing"),
    falsified_if="all-or-nothing keeps all constraints as often",
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
    note="The small model writes no sentences: the values of six nested brackets are six "
    "constraints on one line. Groups of 8 at temperature 1 instead of 32 at 0.7.",
)


def count(text: str, task: pl.Task) -> dict[str, float]:
    """A point for the sentence, and one for each constraint; nothing where it is none."""
    said, kept = pl.toys.ConstraintTasks().kept(text, task)
    return {"total": float(said) * (1 + sum(kept)), "solved": float(said and all(kept))}


def all_kept(text: str, task: pl.Task) -> float:
    said, kept = pl.toys.ConstraintTasks().kept(text, task)
    return float(said and all(kept))


def first_alone(text: str, task: pl.Task) -> dict[str, float]:
    """As many points as `count` has, all of them for the first constraint."""
    said, kept = pl.toys.ConstraintTasks().kept(text, task)
    return {"total": float(said) * (1 + 2 * kept[0]), "solved": float(said and all(kept))}


def rewarded(check: Callable[[str, pl.Task], Any]) -> pl.Recipe:
    paid = pl.links(pl.Sample(n=8), pl.Score(reward=pl.Verify(check)))
    return pl.vary(pl.recipe("grpo"), collect=paid, schedule=FEW)


SMALL = pl.ledger.Experiment(
    claim="On sentences with two constraints, by SmolLM2-135M-Instruct, the number of demands that are kept (a "
    "sentence about its topic, and each constraint) as the reward makes at least 3 points more held-out "
    "sentences keep all than all-or-nothing.",
    quantity="RL on the number that is kept raises how many instructions are followed, without loss of "
    "general ability; all-or-nothing is its measure, and no arm of the paper",
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
    falsified_if="all-or-nothing keeps all as often, within 3 points",
    reasons=(pl.ledger.Needs("first alone", "that every constraint counts"),),
    measure=pl.ledger.Final("sampled_after.pass@1.mean"),
    metric="held-out sentences about their topic that keep both constraints (temperature 1)",
    **sentences(task="constraints(constraints=2)"),
    controls={
        "groups with both kinds": pl.ledger.Logged("groups_mixed", last=0),
        "length": pl.ledger.Logged("length"),
    },
    note="The real model writes sentences, where the tiny one has the values of six brackets for constraints. "
    "The reward of the recipe asks neither for the topic nor for a single sentence; here both are paid, as the "
    "measure demands them and `ok` alone would earn several constraints. No KL, groups of 8 at "
    "temperature 1. All arms have one rate. There are a thousand prompts and more. Nothing was looked at "
    "before the declaration; an eighth of the start's sentences keep one constraint.",
)
