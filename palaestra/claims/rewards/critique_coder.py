"""The claim of critique-coder: Critique-Coder: critique RL."""

from dataclasses import replace
from typing import Any

import palaestra as pl
from palaestra.claims.short import ACCURACY
from palaestra.claims.starts import DemonstrateVerdict, imitation
from palaestra.recipes.rewards.critique_coder import Criticise, build, critique


@pl.stage
class GivenCandidates(Criticise):
    """Candidates that a program writes, right or spoilt, worked or not, half each: no tokens of the
    run. `coin`: the label has nothing to do with the candidate.
    """

    coin: bool = False

    async def ask_critique(self, ctx: pl.Context, key: pl.Key, group: pl.Group) -> pl.Group:
        source: Any = ctx.bench.tasks
        task, rng = group.task, pl.rng_of(("critique", ctx.seed, group.task.id))
        if rng.random() >= self.share:
            return group
        right, label = bool(rng.random() < 0.5), bool(rng.random() < 0.5)
        how = "work" if rng.random() < 0.5 else "guess"
        text = (
            source.demonstration(task, rng, how)
            if right
            else pl.toys.wrong_answer(source, task, rng, how)
        )
        return replace(group, task=critique(task, text, label if self.coin else right))


@pl.stage
class DemonstrateBoth:
    """A verdict, or for the share `solved` of the tasks their working."""

    solved: float = 0.01

    async def __call__(self, ctx: pl.Context, key: pl.Key, group: pl.Group) -> pl.Group:
        solve = pl.rng_of((*key, "both")).random() < self.solved
        demonstrate = pl.Demonstrate() if solve else DemonstrateVerdict()
        return await demonstrate(ctx, key, group)


def after_judging(rl: pl.Runnable) -> pl.Pipeline:
    """From a start that judges better than a coin, and solves some of the chains."""
    sft = pl.warm(imitation(80, DemonstrateBoth(), warmup=5))
    return pl.Pipeline(parts={"shown": sft, "rl": pl.Part(rl, model=pl.Output("shown"))})


def arm(share: float, coin: bool = False) -> pl.Pipeline:
    """8 prompts a step with 8 answers each."""
    made = build(share)
    scored = made.collect.links[1:]  # type: ignore[union-attr]
    collect = pl.links(GivenCandidates(share=share, coin=coin), *scored)
    return after_judging(pl.vary(made, collect=collect, schedule=pl.Schedule(prompts=8, steps=400)))


ARMS = {
    "0%": arm(0.0),
    "20%": arm(0.2),
    "50%": arm(0.5),
    "100%": arm(1.0),
    "20% coin": arm(0.2, coin=True),
}

EXPERIMENT = pl.ledger.Experiment(
    words=__file__,
    start=after_judging(pl.ledger.Untrained()),
    arms=ARMS,
    expect=pl.ledger.Greater("20%", "0%", by=0.02, why="the paper's gain on average is 1.5 points"),
    reasons=(pl.ledger.Needs("20% coin", "that the right verdicts are paid"),),
    measure=ACCURACY,
    metric="held-out accuracy (temperature 1)",
    constants={a: {"rl.optimiser.lr": (1e-4,)} for a in ARMS},
    blocks=pl.ledger.TWENTY_SEEDS,
    task="chain(modulo=9,operands=(6,7),max_tokens=128)",
    tokens=24_000,
    evaluate=192,
    samples=8,
    seconds=20.0,
    controls={
        "right critiques, of all answers": pl.ledger.Logged("part/critique"),
        "length": pl.ledger.Logged("length"),
    },
)
