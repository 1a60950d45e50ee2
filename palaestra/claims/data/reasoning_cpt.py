"""The claim of reasoning-cpt: texts with the thoughts behind them."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, ClassVar

import numpy as np

import palaestra as pl
from palaestra.claims.starts import RATES
from palaestra.recipes.data.reasoning_cpt import WriteDocument, pretrain

CHAT = WriteDocument(form="chat")
ALONE = replace(CHAT, thoughts=False)
STEPS = 40


@pl.stage
class MatchTokens:
    """Further documents without thoughts, other training problems, until a group has as many tokens
    as its document would have with a thought.
    """

    document: WriteDocument
    recorded: ClassVar[bool] = True

    async def __call__(self, ctx: pl.Context, key: pl.Key, group: pl.Group) -> pl.Group:
        longer = await replace(self.document, thoughts=True)(ctx, key, pl.Group(task=group.task))
        most, made = tokens_of(longer), await self.document(ctx, key, group)
        rng = pl.rng_of((*key, "more"))
        size = ctx.bench.tasks.size
        while tokens_of(made) < most:
            other = ctx.bench.tasks.task("train", int(rng.integers(size or 1 << 30)))
            added = await self.document(ctx, (*key, len(made.episodes)), pl.Group(task=other))
            made = replace(made, episodes=(*made.episodes, *added.episodes))
        return made


def tokens_of(group: pl.Group) -> int:
    """Predicted tokens: all that are trained but the first of a row."""
    rows: Sequence[Any] = [r for e in group.episodes for r in e.rows]
    return sum(int(np.sum(r.view().trained_T[1:])) for r in rows)


def staged(document: pl.Collect, rl: pl.Runnable | None = None) -> pl.Pipeline:
    """40 steps of 32 documents; then GRPO, 8 prompts a step."""
    learned = pl.vary(pl.recipe("grpo"), schedule=pl.Schedule(prompts=8, steps=200))
    first = pl.Part(pretrain(document, steps=STEPS), shared=True)
    return pl.Pipeline(parts={"cpt": first, "rl": pl.Part(rl or learned, model=pl.Output("cpt"))})


def bare() -> pl.Pipeline:
    """GRPO from the run's own model."""
    learned = pl.vary(pl.recipe("grpo"), schedule=pl.Schedule(prompts=8, steps=200))
    return pl.Pipeline(parts={"rl": pl.Part(learned)})


ARMS = {
    "no cpt": bare(),
    "text": staged(ALONE),
    "text of equal tokens": staged(MatchTokens(ALONE)),
    "thoughts": staged(CHAT),
    "shuffled thoughts": staged(replace(CHAT, shuffled=True)),
    "thoughts before the text": staged(WriteDocument()),
}

EXPERIMENT = pl.ledger.Experiment(
    words=__file__,
    start=staged(CHAT, pl.ledger.Untrained()),
    arms=ARMS,
    expect=pl.ledger.Greater(
        "thoughts", "text of equal tokens", by=0.08, why="the paper's gain on the hardest problems"
    ),
    reasons=(
        pl.ledger.Needs("shuffled thoughts", "thoughts that lead to this text"),
        pl.ledger.Needs("no cpt", "pre-training at all"),
    ),
    measure=pl.ledger.Final("sampled_after.pass@1.mean"),
    metric="held-out accuracy after RL (temperature 1)",
    constants={
        a: {
            "rl.optimiser.lr": RATES,
            **({} if a == "no cpt" else {"cpt.optimiser.lr": (2e-4, 5e-4)}),
        }
        for a in ARMS
    },
    task="chain(modulo=9)",
    tokens=30_000,
    evaluate=128,
    samples=4,
    seconds=90.0,
    controls={"thoughts, tokens at the end": pl.ledger.Logged("length")},
)
