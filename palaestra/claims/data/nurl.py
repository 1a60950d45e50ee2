"""The claim of nurl: a nudge for prompts that are never solved."""

from typing import Any

import numpy as np

import palaestra as pl
from palaestra.claims.starts import RATES, imitation
from palaestra.recipes.data.nurl import build

GUIDED = "collect.links.2.link.link.links.0"  # where a recipe that hints after failures shows one


@pl.stage
class StepCount:
    """How many steps the working has: a cue that holds nothing of the problem's numbers, in the place
    of a hint that a model wrote.
    """

    def __call__(self, ctx: pl.Context, group: pl.Group, rng: np.random.Generator) -> str:
        lines = (
            pl.rollout.written_answer(ctx.bench.tasks, group.task, rng, "work").strip().splitlines()
        )
        return f"in {len(lines) - 1} steps" if len(lines) > 1 else ""


def taught(rl: pl.Runnable) -> pl.Pipeline:
    """25 steps of imitation of chains of 4 to 6 numbers; then the arm, with 8 prompts a step."""
    easier = pl.warm(imitation(25), "chain(modulo=9)")
    return pl.Pipeline(parts={"sft": easier, "rl": pl.Part(rl, model=pl.Output("sft"))})


def nudged(kind: Any = "steps", place: Any = "start", **options: Any) -> pl.Pipeline:
    """Hints begin the reply, unless `place` says otherwise."""
    learned = build(kind, place, **options)
    return taught(pl.vary(learned, schedule=pl.Schedule(prompts=8, steps=200)))


def begun(working: pl.Working) -> pl.Pipeline:
    """Another part of a working, or one of another task, begins the reply."""
    learned = pl.override(build("steps", "start"), f"{GUIDED}.guidance", working)
    return taught(pl.vary(learned, schedule=pl.Schedule(prompts=8, steps=200)))


def cued() -> pl.Pipeline:
    """The number of steps stands in the prompt where a task has no hint."""
    count = pl.rollout.HintColumn(otherwise=StepCount())
    learned = pl.override(build("cue"), f"{GUIDED}.rewrite.guidance", pl.rollout.Unleaked(count))
    return taught(pl.vary(learned, schedule=pl.Schedule(prompts=8, steps=200)))


def unhinted() -> pl.Pipeline:
    learned = pl.vary(build("cue"), collect=pl.links(pl.Sample(n=8), pl.Score()))
    return taught(pl.vary(learned, schedule=pl.Schedule(prompts=8, steps=200)))


ARMS = {
    "grpo": unhinted(),
    "nurl": nudged(),
    "always": nudged(every=True),
    "all hinted": nudged(bare=0),
    "first line": begun(pl.Working(1.0, "lines")),
    "shuffled": begun(pl.Working(0.5, "steps", True)),
    "cue in the prompt": cued(),
    "steps in the prompt": nudged("steps", "prompt"),
    "answer in the prompt": nudged("answer", "prompt"),
}

EXPERIMENT = pl.ledger.Experiment(
    words=__file__,
    start=taught(pl.ledger.Untrained()),
    arms=ARMS,
    expect=pl.ledger.Greater(
        "nurl", "grpo", by=0.03, why="half of what the paper's pass@1024 gains on two tasks"
    ),
    reasons=(
        pl.ledger.Needs("first line", "more than a word to begin with"),
        pl.ledger.Needs("shuffled", "what the hint says of this task"),
        pl.ledger.Needs("always", "hints only where all answers fail"),
        pl.ledger.Needs("all hinted", "a bare answer in the new group"),
    ),
    vetoes={
        "pass@1": pl.ledger.Veto(
            pl.ledger.Final("sampled_after.pass@1.mean"), falls=0.03, against="grpo"
        )
    },
    measure=pl.ledger.Final("sampled_after.pass@8.mean"),
    metric="held-out pass@8 without hints (temperature 1)",
    constants={arm: {"rl.optimiser.lr": RATES[:2]} for arm in ARMS},
    task="chain(modulo=9,operands=(6,7),max_tokens=96)",
    tokens=40_000,
    evaluate=128,
    samples=8,
    seconds=90.0,
    controls={
        "share of hinted answers": pl.ledger.Logged("is:guided", last=0),
        "groups with a gradient": pl.ledger.Logged("groups_mixed_trained", last=0),
    },
)
