"""The claim of reasoning-cpt: texts with the thoughts behind them."""

from dataclasses import replace

import palaestra as pl
from palaestra.claims.starts import RATES
from palaestra.recipes.data.reasoning_cpt import MatchTokens, WriteDocument, pretrain

CHAT = WriteDocument(form="chat")
ALONE = replace(CHAT, thoughts=False)
STEPS = 40


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
