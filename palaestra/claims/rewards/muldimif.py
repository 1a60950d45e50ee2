"""The claim of muldimif: Multi-dimensional constraint framework for instruction following."""

import palaestra as pl
from palaestra.recipes.rewards.muldimif import build

EXPERIMENT = pl.Experiment(
    claim="With the number of constraints kept as the reward, all are kept more often than with "
    "all-or-nothing.",
    arms={
        "all or nothing": build(every=True, n=8, temperature=1.0),
        "count": build(n=8, temperature=1.0),
    },
    expect=pl.Greater("count", "all or nothing"),
    falsified_if="all-or-nothing keeps all constraints as often",
    measure=pl.Final(),
    metric="held-out answers that keep all constraints (greedy)",
    task="bool(d=6)",
    tokens=30_000,
    seconds=40.0,
    controls={
        "share kept": pl.Logged("part/share"),
        "mixed": pl.Logged("groups_mixed"),
        "before": pl.Final("before.mean"),
    },
    note="The small model writes no sentences: the values of six nested brackets are six "
    "constraints on one line. Groups of 8 at temperature 1 instead of 32 at 0.7.",
)
