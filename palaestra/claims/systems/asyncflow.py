"""The claim of asyncflow: rollouts that go on while the learner works, with a bounded age."""

import asyncio
import math

import palaestra as pl
from palaestra.claims.speed import SKIPPED, LogSpeed
from palaestra.recipes.systems.asyncflow import build


@pl.stage
class Wait:
    """Hands a group on after exp(log median + sigma z) seconds, z of the group's key: a slow
    environment, or a long answer on a device of its own. The groups of a ticket wait side by side.
    """

    median: float = 0.2
    sigma: float = 0.8

    async def __call__(self, ctx: pl.Context, key: pl.Key, group: pl.Group) -> pl.Group:
        z = float(pl.rng_of((*key, "wait")).standard_normal())
        await asyncio.sleep(self.median * math.exp(self.sigma * z))
        return group


def waiting(lag: int) -> pl.Recipe:
    """The recipe with groups that wait; half the prompts, so that less of a step is spent on the
    processor.
    """
    return pl.vary(
        build(streaming=False),
        collect=pl.links(pl.Sample(n=8), pl.Score(), Wait()),
        schedule=pl.Schedule(prompts=8, steps=50, lag=lag),
    )


def beside(lag: int) -> pl.scale.OnCluster:
    """With two rollout processes beside the learner's."""
    return pl.scale.OnCluster(runnable=waiting(lag), cluster=pl.Cluster(workers=2))


EXPERIMENT = pl.ledger.Experiment(
    words=__file__,
    arms={
        "lag 0": beside(0),
        "lag 1": beside(1),
        "lag 4": beside(4),
        "lag 1 in one process": waiting(1),
    },
    expect=pl.ledger.Greater(
        "lag 1",
        "lag 0",
        by=math.log(1.15),
        why="a factor of 1.15, a quarter of the paper's gain of 1.59",
    ),
    reasons=(
        pl.ledger.Needs("lag 1 in one process", "rollouts that go on while the learner works"),
    ),
    vetoes={
        "sampled accuracy": pl.ledger.Veto(pl.ledger.Final("sampled_after.pass@1.mean"), falls=0.05)
    },
    choose=pl.ledger.Final("sampled_after.pass@1.mean"),
    measure=LogSpeed(),
    metric="natural logarithm of the answers learned from in a second of wall-clock time, from the "
    "fifth step on",
    tuned={"optimiser.lr": (3e-5, 1e-4)},
    task="chain(operands=(7,9))",
    tokens=60_000,
    evaluate=128,
    samples=4,
    seconds=90.0,
    controls={
        "time in which workers collect": pl.ledger.Logged("rollout_busy", last=0, skip=SKIPPED),
    },
)
