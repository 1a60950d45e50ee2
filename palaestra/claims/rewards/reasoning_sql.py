"""The claim of reasoning-sql: Reasoning-SQL: partial rewards for text-to-SQL."""

from palaestra.ledger.experiment import Experiment, Final, Greater, Logged
from palaestra.recipes.rewards.reasoning_sql import PARTIAL, build
from palaestra.rewards.rewritten import Weighed

LIKENESS = (("syntax", 1.0), ("schema", 1.0), ("ngrams", 1.0), ("format", 1.0))


EXPERIMENT = Experiment(
    claim="With partial rewards more samples are right than with execution alone, after equal sampled tokens.",
    arms={
        "execution": build(reward=Weighed(PARTIAL, (("execution", 1.0),))),
        "partial": build(),
        "without execution": build(reward=Weighed(PARTIAL, LIKENESS)),
    },
    expect=Greater("partial", "execution"),
    falsified_if="execution alone is as accurate, or more",
    task="add(d=6)",
    tokens=30_000,
    seconds=40.0,
    controls={
        "likeness": Logged("part/ngrams"),
        "accuracy": Final(),
        "mixed": Logged("groups_mixed"),
    },
    measure=Logged("part/execution"),
    metric="share of right samples, last ten steps",
    note="The small model writes no SQL: each character of its answer becomes a column of a query, which runs and "
    "is compared as in the paper; without a judge. One table, no joins, and no schema that was not trained on.",
)
