"""AsyncFlow: rollouts go on while the learner works, and nothing older than a threshold is learned
from.

GRPO's step, with a delayed update: the rollouts of step s use the weights of step s - `lag`. In the
paper a row is consumed only if it is at most eta versions old (arXiv:2507.01663). Here no more than
eta = `lag` attempts are ever issued ahead, so nothing can grow older and nothing is dropped: what
is late is what is long, and a rule that drops it trains on the short (docs/plan.md).

Workers, exactly-once delivery and weights by version are a run's `--cluster`, see docs/cluster.md.
One process gives the same numbers, and overlaps nothing. Only the delayed update is here. Not built:
the TransferQueue with its columns, and the streaming of micro-batches, where a learner begins on what
has landed. What streaming would bring on your own seconds is a measured plan:

    palaestra train asyncflow --cluster cluster.toml ...    a run, whose seconds are measured
    palaestra plan --run DIR --streaming                    what streaming would make of them
"""

import palaestra as pl

CARD = pl.Card(
    title="AsyncFlow: the delayed update within a staleness threshold",
    paper="arXiv:2507.01663",
    claim="Streaming and a bounded age of samples raise throughput 1.59 times on average, at no "
    "loss of reward.",
    source="abstract and second-hand overviews, and the package transferqueue 0.1.11; its planner "
    "and its leases are inferred",
    size=pl.Size(setting="clusters of Ascend NPUs; models and data second-hand"),
    needs=pl.needs.Requirements(shows="age_mean", off={"lag": 0}, own={"schedule.prompts": 2}),
    use="It helps where rollouts take about as long as updates, on a cluster; one process gives the "
    "same numbers and no speed.",
    lacks=(
        "There is no queue of transfers with columns that several stages read as they become ready.",
        "Groups are not streamed: the learner begins when its batch has landed.",
        "The planner of the paper is `palaestra plan`, a simulator over measured seconds.",
    ),
)


def build(lag: int = 1) -> pl.Recipe:
    """`lag` is eta, the largest age of a sample, in steps."""
    return pl.vary(pl.recipe("grpo"), schedule=pl.Schedule(prompts=16, steps=50, lag=lag))
