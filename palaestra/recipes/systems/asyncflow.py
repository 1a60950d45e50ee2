"""AsyncFlow: groups of answers stream into the learner as they are finished, rollouts go on while it
works, and nothing older than a threshold is learned from.

GRPO's step, in three parts (arXiv:2507.01663):
1. Groups are handed out one by one. Each that is finished enters a queue of transfers, a table with
   a row for a group and a column for what is known of it: answers and rewards, what models say of
   them, credit, gradient. Each stage takes the rows whose columns it needs are there, once.
2. The learner adds a group's gradient when the group is there. The optimiser steps when all of the
   batch is there, with the sum that the batch would give at once, to float rounding.
3. Rollouts run `lag` steps ahead. In the paper a row is consumed only if it is at most eta versions
   old. Here no more than eta = `lag` batches are ever issued ahead, so nothing can grow older and
   nothing is dropped: what is late is what is long, and a rule that drops it trains on the short
   (docs/plan.md).

`streamed` in the metrics is the share of a batch's groups that were learned from before its last
group was finished; `idle` the share of the time of streaming in which the learner waited. Workers,
exactly-once delivery and weights by version are a run's `--cluster`, see docs/cluster.md. One process
samples one group after the other, so it streams with lag 0, at no gain of time.

Deviations: the queue is in the learner's process and is not stored: what was under way at a kill is
sampled and learned from again. One learner process, and a loss that is one sum.
"""

import palaestra as pl

CARD = pl.Card(
    title="AsyncFlow: groups streamed into the learner within a staleness threshold",
    paper="arXiv:2507.01663",
    claim="Streaming and a bounded age of samples raise throughput 1.59 times on average, at no "
    "loss of reward.",
    source="abstract and second-hand overviews, and the package transferqueue 0.1.11; its planner "
    "and its leases are inferred",
    size=pl.Size(setting="clusters of Ascend NPUs; models and data second-hand"),
    needs=pl.needs.Requirements(
        shows="streamed", off={"streaming": False}, own={"lag": 0, "groups": 3}
    ),
    use="It helps where rollouts take about as long as updates, on a cluster; one process gives the "
    "same numbers and no speed.",
    lacks=(
        "The queue of transfers is in the learner's process; storage units on several nodes "
        "are not there.",
        "A learner of several ranks does not stream.",
        "The planner of the paper is `palaestra plan`, a simulator over measured seconds; "
        "load is balanced by tickets alone.",
        "Engines of others have no service interface beside `--engine`.",
    ),
    grade="B",
)


def build(lag: int = 1, groups: int = 16, streaming: bool = True) -> pl.Recipe:
    """`lag` is eta, the largest age of a sample, in steps; `groups` are those of a step. Without
    `streaming` the learner begins when all of them are there.
    """
    if not streaming:
        return pl.vary(pl.recipe("grpo"), schedule=pl.Schedule(prompts=groups, steps=50, lag=lag))
    return pl.vary(
        pl.recipe("grpo"),
        pool=pl.scale.Arrivals(size=groups),
        update=pl.scale.Streamed(size=groups),
        # a group is an attempt of its own, so as many attempts as a batch has are one step
        schedule=pl.Schedule(prompts=1, steps=50, lag=lag * groups, max_age=lag, rounds=groups),
    )
