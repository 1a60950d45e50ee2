"""The claim of icpo: an example makes an expert of the model."""

from dataclasses import replace
from typing import Any

import numpy as np

import palaestra as pl
from palaestra.claims.starts import RATES, ThinkInstead
from palaestra.recipes.data.icpo import MARK, build

FADES = 20  # steps, about as many as a run has


@pl.stage
class Mismatched:
    """A worked example whose working is that of another problem."""

    def __call__(self, ctx: pl.Context, group: pl.Group, rng: np.random.Generator) -> pl.Task:
        asked, worked = (pl.rollout.another_task(ctx, group.task, rng) for _ in range(2))
        text = pl.rollout.written_answer(ctx.bench.tasks, worked, rng, "work")
        return pl.tasks.add_examples(group.task, [(asked, text)])


def expert(rewrite: "pl.rollout.Rewrite | None" = None, **options: Any) -> pl.Recipe:
    """8 prompts a step; the expert sees what `rewrite` shows in the place of an example."""
    setting: dict[str, Any] = {"fades": FADES, **options}
    learned = build(**setting)
    if rewrite is not None:
        learned = pl.override(learned, "collect.links.1.rewrite", rewrite)
    return pl.vary(learned, schedule=replace(learned.schedule, prompts=8, steps=200))


def plain() -> pl.Recipe:
    """GRPO with eight answers, ICPO's own loss of them and its KL."""
    learned = build()
    own = pl.DualClipped(low=0.2, high=0.2, c=3.0) + 0.001 * pl.KL("k3", reduce="tokens")
    return pl.vary(
        learned,
        collect=pl.links(pl.Sample(n=8), pl.Score()),
        credit=pl.chain(pl.Center("group"), pl.Scale("group")),
        objective=own,
        schedule=replace(learned.schedule, prompts=8, steps=200),
    )


EXPERIMENT = pl.ledger.Experiment(
    words=__file__,
    arms={
        "grpo": plain(),
        "icpo": expert(bonus=0.0, fades=0),
        "icpo-rs": expert(),
        "bonus that stays": expert(fades=0),
        "without rejection": expert(reject=False),
        "probability itself": expert(shaped=False),
        "think instead": expert(ThinkInstead()),
        "mismatched": expert(Mismatched()),
    },
    expect=pl.ledger.Greater(
        "icpo-rs", "grpo", by=0.03, why="the least that a reader of such tables calls a gain"
    ),
    reasons=(
        pl.ledger.Needs("think instead", "an example, and not only a word that says to work"),
        pl.ledger.Needs("mismatched", "an example that is right"),
        pl.ledger.Needs("icpo", "the falling bonus"),
    ),
    measure=pl.ledger.Final("sampled_after.pass@1.mean"),
    metric="held-out accuracy without an example (temperature 1)",
    tuned={"optimiser.lr": RATES},
    task="chain(operands=(6,7),max_tokens=96)",
    tokens=6_000,
    evaluate=128,
    samples=8,
    seconds=40.0,
    controls={
        "tokens of the expert": pl.ledger.Logged(f"{MARK}/shaped", last=0),
        "entropy": pl.ledger.Logged("entropy_sampled"),
    },
)
