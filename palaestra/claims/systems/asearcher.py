"""The claim of asearcher: long turn limits, and episodes that wait for nobody."""

import math

import palaestra as pl
from palaestra.claims.searching import TellSearches, after_showing
from palaestra.claims.speed import SKIPPED, LogSpeed
from palaestra.claims.starts import RATES
from palaestra.recipes.systems.asearcher import searcher

SHOWN = 200  # steps of imitation


def agents(lag: int, turns: int, decoupled: bool = True) -> pl.Recipe:
    """The recipe with 6 prompts x 4 answers a step, of which groups with different scores train."""
    own = searcher(lag=lag, turns=turns, decoupled=decoupled)
    return pl.vary(
        own,
        collect=pl.links(
            pl.Sample(n=4, turns=turns), pl.Score(), pl.rewards.AnswerF1(), TellSearches()
        ),
        pool=pl.Mixed(size=3),
        schedule=pl.Schedule(prompts=6, steps=200, lag=lag),
    )


def beside(lag: int, turns: int, decoupled: bool = True, workers: int = 2) -> pl.Pipeline:
    """With rollout processes beside the learner's, after the imitation; 0 = in one process."""
    cluster, learned = pl.Cluster(workers=workers), agents(lag, turns, decoupled)
    return after_showing(pl.scale.OnCluster(runnable=learned, cluster=cluster), SHOWN)


EXPERIMENT = pl.ledger.Experiment(
    words=__file__,
    arms={
        "4 turns": beside(0, 4),
        "16 turns": beside(0, 16),
        "16 turns at lag 4": beside(4, 16),
        "16 turns at lag 4 not decoupled": beside(4, 16, decoupled=False),
        "16 turns at lag 4 in one process": beside(4, 16, workers=0),
    },
    start=after_showing(pl.ledger.Untrained(), SHOWN),
    expect=pl.ledger.Greater(
        "16 turns at lag 4",
        "16 turns",
        by=math.log(1.15),
        why="a factor of 1.15, what asyncflow's claim asks of a lag",
    ),
    reasons=(
        pl.ledger.Needs(
            "16 turns at lag 4 in one process", "rollouts that go on while the learner works"
        ),
    ),
    vetoes={
        "sampled accuracy": pl.ledger.Veto(
            pl.ledger.Final("sampled_after.pass@1.mean"), falls=0.05
        ),
        "sampled accuracy, 4 turns": pl.ledger.Veto(
            pl.ledger.Final("sampled_after.pass@1.mean"), falls=0.0, against="4 turns"
        ),
        "sampled accuracy, not decoupled": pl.ledger.Veto(
            pl.ledger.Final("sampled_after.pass@1.mean"),
            falls=0.03,
            against="16 turns at lag 4 not decoupled",
        ),
    },
    choose=pl.ledger.Final("sampled_after.pass@1.mean"),
    measure=LogSpeed(),
    metric="natural logarithm of the episodes collected in a second of wall-clock time, from the "
    "fifth step on",
    tuned={"runnable.runnable.learners.policy.optimiser.lr": RATES[:2]},
    task="wiki-far",
    tokens=80_000,
    tuning_tokens=30_000,
    evaluate=64,
    samples=4,
    seconds=450.0,
    controls={
        "time in which workers collect": pl.ledger.Logged("rollout_busy", last=0, skip=SKIPPED),
        "weights above 5": pl.ledger.Logged("tis_capped", last=0),
        "cut, last ten": pl.ledger.Logged("part/cut", last=10),
        "searches an episode, last ten": pl.ledger.Logged("part/searches", last=10),
    },
)
