"""The claim of j1-judge: J1: incentivising thinking in LLM-as-a-judge."""

from typing import Any

import numpy as np

import palaestra as pl
from palaestra.claims.short import ACCURACY, THREE_POINTS
from palaestra.claims.starts import imitation, unmoved
from palaestra.recipes.rewards.j1_judge import BothOrders, Mode, build


@pl.stage
class Biased:
    """Demonstrations of a judge who likes the first place: a guess of `= 1` in `first` of the
    cases. The share `works` is real work, which puts the own answer beside the first one.
    """

    first: float = 0.8
    works: float = 0.6

    async def __call__(self, ctx: pl.Context, key: pl.Key, group: pl.Group) -> pl.Group:
        rng = pl.rng_of(key)
        half: pl.Task = group.task.meta["halves"][int(rng.integers(2))]
        guess = pl.tasks.format_answer([], "1" if rng.random() < self.first else "2")
        reply = self._work(ctx, half) if rng.random() < self.works else guess
        return pl.Group(
            task=group.task, episodes=(pl.recorded_episode(ctx, "policy", half.prompt, reply, 1.0),)
        )

    def _work(self, ctx: pl.Context, half: pl.Task) -> str:
        source: Any = ctx.bench.tasks
        whole_task: pl.Task = half.meta["judged"]
        beside = f"{whole_task.answer} {pl.tasks.final_answer(half.meta['texts'][0])}"
        return pl.tasks.format_answer(
            [*source.halves.source.steps(whole_task), beside], half.answer
        )


@pl.stage
class OfANeighbour(BothOrders):
    """The reward for consistency is that of the next answer of the batch."""

    def __call__(self, x: pl.Values, table: pl.Table) -> pl.Values:
        paid = super().__call__(x, table)
        own_N = table.columns["consistent"].x_N
        return pl.Values(level="turn", x_N=paid.x_N - own_N + np.roll(own_N, 2))


def on_bench(mode: Mode = "sum") -> pl.Recipe:
    """The method where the problem itself asks about pairs."""
    return pl.vary(build(mode), collect=pl.recipe("grpo").collect)


def unlearn_bias(learned: pl.Runnable) -> pl.Pipeline:
    biased = pl.warm(imitation(240, Biased(), warmup=5))
    return pl.Pipeline(parts={"biased": biased, "rl": pl.Part(learned, model=pl.Output("biased"))})


def neighbours() -> pl.Recipe:
    credit = pl.chain(OfANeighbour(), pl.Center("position"), pl.Scale("position"))
    return pl.vary(on_bench(), credit=credit)


EXPERIMENT = pl.ledger.Experiment(
    words=__file__,
    start=unlearn_bias(unmoved(on_bench())),
    arms={
        "correctness": unlearn_bias(on_bench("correctness")),
        "j1": unlearn_bias(on_bench()),
        "consistency": unlearn_bias(on_bench("consistency")),
        "of a neighbour": unlearn_bias(neighbours()),
    },
    expect=pl.ledger.Greater("j1", "correctness", by=0.03, why=THREE_POINTS),
    reasons=(
        pl.ledger.Needs("of a neighbour", "the own consistency, and not a larger pay"),
        pl.ledger.Needs("consistency", "pay for single verdicts beside it"),
    ),
    constants={
        arm: {"rl.optimiser.lr": (1e-4,)}
        for arm in ("correctness", "j1", "consistency", "of a neighbour")
    },
    vetoes={
        "single verdicts that are right, last five steps": pl.ledger.Veto(
            pl.ledger.Logged("reward", last=5), falls=0.02
        )
    },
    measure=ACCURACY,
    metric="held-out pairs judged rightly in both orders (temperature 1)",
    task="compare-pairs",
    tokens=40_000,
    evaluate=128,
    samples=4,
    seconds=40.0,
    controls={
        "greedy, right in both orders": pl.ledger.Final(),
        "flips, by tokens, last five steps": pl.ledger.Logged("flips", last=5),
        "tokens a pair": pl.ledger.Logged("length", last=5),
    },
)
