"""The claim of reasoning-sql: Reasoning-SQL: partial rewards for text-to-SQL."""

import palaestra as pl
from palaestra.recipes.rewards.reasoning_sql import PARTIAL, build

LIKENESS = (("syntax", 1.0), ("schema", 1.0), ("ngrams", 1.0), ("format", 1.0))


EXPERIMENT = pl.ledger.Experiment(
    words=__file__,
    arms={
        "execution": build(reward=pl.rewards.Weighed(PARTIAL, (("execution", 1.0),))),
        "partial": build(),
        "without execution": build(reward=pl.rewards.Weighed(PARTIAL, LIKENESS)),
    },
    expect=pl.ledger.Greater("partial", "execution"),
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
)
