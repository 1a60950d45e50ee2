"""The claim of j1-stts: J1-7B: simple test-time scaling for judges."""

from dataclasses import dataclass, replace
from typing import Any

import palaestra as pl
from palaestra.claims.starts import RATES, imitation
from palaestra.recipes.rewards.j1_stts import pair_verdict, reinforce, scaling_numbers


@pl.stage
class Reflect:
    """A demonstration that works, may doubt (`= ?`) and work again, up to `most` times, and ends
    with the right verdict.

    A share `doubt` of the rounds is doubted, so a verdict is the likelier end of each. Of the
    doubted ones `spoilt` came to a wrong result; the others are confirmed.
    """

    spoilt: float = 0.5
    doubt: Any = 0.3
    most: int = 3

    async def __call__(self, ctx: pl.Context, key: pl.Key, group: pl.Group) -> pl.Group:
        source: Any = ctx.bench.tasks
        rng, task = pl.rng_of(key), group.task
        *steps, own, answer = source.demonstration(task, rng, "work").split("\n")
        result, *rest = own.split()
        lines: list[str] = []
        for _ in range(min(self.most, int(rng.geometric(1 - self.doubt)) - 1)):
            wrong = str((int(result) + int(rng.integers(1, 10))) % 10)
            lines += [
                *steps,
                " ".join([wrong, *rest]) if rng.random() < self.spoilt else own,
                pl.tasks.UNSURE_ANSWER,
            ]
        reply = "\n".join([*lines, *steps, own, answer])
        return replace(
            group, episodes=(pl.recorded_episode(ctx, "policy", task.prompt, reply, 1.0),)
        )


def reflection_recipe(steps: int = 75) -> pl.Recipe:
    """Step 1. The verdict is learned in 25 steps without doubts, for a small judge's begin at a
    coin.
    """
    return imitation(steps, Reflect(doubt=pl.Jump(0.0, 0.3, 25)), lr=8e-4, warmup=5)


@dataclass(frozen=True)
class Scaling:
    """Runs `recipe`, then judges held-out tasks greedily with each number of forced rounds; the
    metrics gain "stts".
    """

    recipe: pl.Runnable
    rounds: tuple[int, ...] = (0, 1, 2, 3)
    tasks: int = 384

    async def run(self, ctx: pl.Context) -> pl.Result:
        result = await self.recipe.run(ctx)
        attempts = dict[int, list[pl.Group]]()
        for n in self.rounds:
            forced = ctx.with_bench(replace(ctx.bench, world=pl.worlds.Forced(n), reward=None))
            sample = pl.Sample(n=1, temperature=0.0)
            attempts[n] = await pl.run.attempt_tasks(forced, self.tasks, sample)
        scaling = scaling_numbers(attempts)
        return pl.Result(metrics={**result.metrics, "stts": scaling}, artifacts=result.artifacts)


def on_bench() -> pl.Recipe:
    """Step 2 where the problem itself asks for a verdict."""
    paid = pl.Score(reward=pl.Verify(pair_verdict), shadow=True)
    return pl.vary(reinforce(), collect=pl.links(pl.Sample(n=8), paid))


def shrink(learned: pl.Recipe) -> pl.Recipe:
    """Step 2 with 8 prompts x 8 verdicts, each long enough for three doubts."""
    return pl.override(
        pl.vary(learned, schedule=pl.Schedule(prompts=8)), "collect.sample.max_tokens", 192
    )


EXPERIMENT = pl.ledger.Experiment(
    words=__file__,
    arms={
        "start": Scaling(pl.vary(reflection_recipe(), schedule=pl.Schedule(prompts=1, steps=0))),
        "sft": pl.Pipeline(parts={"sft": pl.Part(Scaling(reflection_recipe()))}),
        "sft twice as long": pl.Pipeline(parts={"sft": pl.Part(Scaling(reflection_recipe(150)))}),
        "sft and rl": pl.Pipeline(
            parts={
                "sft": pl.Part(reflection_recipe()),
                "rl": pl.Part(Scaling(shrink(on_bench())), model=pl.Output("sft")),
            }
        ),
    },
    expect=pl.ledger.Greater(
        "sft and rl", "sft", by=0.02, why="six points over three rounds, about the paper's 5.1%"
    ),
    reasons=(pl.ledger.Needs("sft twice as long", "rewards, and not further training"),),
    vetoes={
        "without forcing": pl.ledger.Veto(
            pl.ledger.Final("stts.accuracy@0"), falls=0.03, against="sft"
        )
    },
    measure=pl.ledger.Final("stts.slope"),
    constants={"sft and rl": {"rl.recipe.learners.policy.optimiser.lr": RATES[:2]}},
    metric="slope of held-out accuracy a forced round (0 to 3 rounds, greedy)",
    task="variants(operands=(6,7))",
    tokens=60_000,
    evaluate=64,
    seconds=115.0,
    controls={
        "accuracy, three rounds": pl.ledger.Final("stts.accuracy@3"),
        "corrected": pl.ledger.Final("stts.corrected"),
        "spoilt": pl.ledger.Final("stts.spoilt"),
        "verdict kept": pl.ledger.Final("stts.kept"),
        "still in doubt": pl.ledger.Final("stts.undecided"),
    },
)
