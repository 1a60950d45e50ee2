"""The claim of reasoning-sql: Reasoning-SQL: partial rewards for text-to-SQL."""

import palaestra as pl
from palaestra.recipes.rewards.reasoning_sql import PARTIAL, build

LIKENESS = (("syntax", 1.0), ("schema", 1.0), ("ngrams", 1.0), ("format", 1.0))


EXPERIMENT = pl.ledger.Experiment(
    claim="With partial rewards more samples are right than with execution alone, after equal "
    "sampled tokens.",
    arms={
        "execution": build(reward=pl.rewards.Weighed(PARTIAL, (("execution", 1.0),))),
        "partial": build(),
        "without execution": build(reward=pl.rewards.Weighed(PARTIAL, LIKENESS)),
    },
    expect=pl.ledger.Greater("partial", "execution"),
    falsified_if="execution alone is as accurate, or more",
    task="add(d=6)",
    tokens=30_000,
    seconds=40.0,
    controls={
        "likeness": pl.ledger.Logged("part/ngrams"),
        "accuracy": pl.ledger.Final(),
        "mixed": pl.ledger.Logged("groups_mixed"),
    },
    measure=pl.ledger.Logged("part/execution"),
    metric="share of right samples, last ten steps",
    note="The small model writes no SQL: each character of its answer becomes a column of a query, "
    "which runs and is compared as in the paper; without a judge. One table, no joins, and no "
    "schema that was not trained on.",
)
