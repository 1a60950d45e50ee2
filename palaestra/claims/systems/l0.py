"""The claim of l0: L-Zero: sandboxed concurrent agent worker pool, NB-Agent REPL."""

import re
from dataclasses import replace
from typing import Any

import numpy as np

import palaestra as pl
from palaestra.claims.starts import RATES, imitation
from palaestra.recipes.systems.l0 import build

SHOWN = 120  # steps of imitation


@pl.stage
class DemonstrateCells:
    """An episode of T-lookup, cell by cell. The share `hasty` of the cells that should only look
    something up answers instead, which is wrong: a habit to be unlearned.
    """

    hasty: float = 0.35

    async def __call__(self, ctx: pl.Context, key: pl.Key, group: pl.Group) -> pl.Group:
        *turns, last = self._turns(group.task, pl.rng_of(key))
        prompt = (*group.task.prompt, *turns)
        made = pl.recorded_episode(ctx, "policy", prompt, last.content, 1.0, judged=False)
        return replace(group, episodes=(made,))

    def _turns(self, task: pl.Task, rng: np.random.Generator) -> list[pl.Message]:
        """What is said after the question."""
        *cells, last = task.meta["solution"]
        turns: list[pl.Message] = []
        for cell in cells:
            if rng.random() < self.hasty:
                last = re.sub(r"<code>\w=(.*)</code>", r"<code>answer(\1)</code>", cell)
                break
            turns += [demonstrated(cell), pl.Message(role="tool", content="ok")]
        return [*turns, demonstrated(last)]


def demonstrated(cell: str) -> pl.Message:
    return pl.Message(role="assistant", content=cell, author="demonstration", trained=True)


def after_showing(learned: Any) -> pl.Pipeline:
    """From a start that was shown a few episodes and writes cells that are often wrong."""
    sft = imitation(SHOWN, DemonstrateCells(), prompts=8, lr=2e-3, warmup=5)
    return pl.Pipeline(
        parts={"shown": pl.Part(sft), "rl": pl.Part(learned, model=pl.Output("shown"))}
    )


def shrink(learned: pl.Recipe) -> pl.Pipeline:
    """4 prompts of 6 that are drawn a step, after the imitation."""
    small = pl.override(learned, "pool.size", 4)
    return after_showing(pl.vary(small, schedule=pl.Schedule(prompts=6, steps=200)))


EXPERIMENT = pl.ledger.Experiment(
    words=__file__,
    start=after_showing(pl.ledger.Untrained()),
    arms={
        "step": shrink(build()),
        "trajectory": shrink(build(level="trajectory")),
        "answer only": shrink(build(shaped=False)),
    },
    expect=pl.ledger.Greater("step", "start", by=0.10, why="half of the smaller gain in the paper"),
    reasons=(
        pl.ledger.Needs("trajectory", "credit by step"),
        pl.ledger.Needs("answer only", "rewards for format and execution"),
    ),
    measure=pl.ledger.Final("sampled_after.pass@1.mean"),
    metric="held-out accuracy (temperature 1)",
    tuned={"parts.rl.runnable.learners.policy.optimiser.lr": RATES},
    task="lookup",
    tokens=110_000,
    tuning_tokens=40_000,
    evaluate=64,
    samples=4,
    seconds=180.0,
    controls={
        "right, last ten": pl.ledger.Logged("part/right", last=10),
        "well formed, last ten": pl.ledger.Logged("part/formed", last=10),
        "ran without error, last ten": pl.ledger.Logged("part/clean", last=10),
        "tokens an episode": pl.ledger.Logged("length", last=10),
    },
)
