"""The claim of rlgf: a policy that starts from a guide's states comes to surpass the guide."""

from typing import Any

import palaestra as pl
from palaestra.claims.starts import RATES, TWO_POINTS, half_taught, imitation, warm_chain
from palaestra.recipes.data.rlgf import build

BETTER = 6  # steps of imitation that the guide is ahead


def rolled(kind: Any, **options: Any) -> pl.Recipe:
    """8 prompts a step with 4 attempts each. Answers of some 40 bytes are not discounted."""
    learned = build(kind, samples=4, gamma=1.0, **options)
    return pl.vary(learned, schedule=pl.Schedule(prompts=8, steps=60))


def guided(rl: pl.Runnable) -> pl.Pipeline:
    """The guide is the start after a little more imitation."""
    parts = {
        "sft": warm_chain(),
        "guide": pl.warm(imitation(BETTER), "chain(modulo=9)", model=pl.Output("sft")),
        "rl": pl.Part(rl, model=pl.Output("sft"), models={"guide": pl.Output("guide")}),
    }
    return pl.Pipeline(parts=parts)


def guide_alone() -> pl.Pipeline:
    parts = {
        "sft": warm_chain(),
        "guide": pl.warm(imitation(BETTER), "chain(modulo=9)", model=pl.Output("sft")),
        "rl": pl.Part(pl.ledger.Untrained(), model=pl.Output("guide")),
    }
    return pl.Pipeline(parts=parts)


ARMS = {
    "guide": guide_alone(),
    "ppo": half_taught(rolled("ppo++", beta=0.0)),
    "ppo++": guided(rolled("ppo++")),
    "aggrevate": guided(rolled("aggrevate")),
    "lols": guided(rolled("lols")),
    "d2lols": guided(rolled("d2lols", tau=8)),
    "old self as guide": half_taught(rolled("ppo++")),
}

EXPERIMENT = pl.ledger.Experiment(
    words=__file__,
    start=half_taught(pl.ledger.Untrained()),
    arms=ARMS,
    expect=pl.ledger.Greater("ppo++", "guide", by=0.02, why=TWO_POINTS),
    reasons=(
        pl.ledger.Needs("ppo", "the guide's states"),
        pl.ledger.Needs("old self as guide", "a guide that is better than the policy"),
    ),
    vetoes={
        "against ppo": pl.ledger.Veto(
            pl.ledger.Final("sampled_after.pass@1.mean"), 0.03, against="ppo"
        )
    },
    measure=pl.ledger.Final("sampled_after.pass@1.mean"),
    metric="held-out accuracy (temperature 1)",
    constants={a: {"rl.optimiser.lr": RATES[:2]} for a in ARMS if a != "guide"},
    task="chain(modulo=9,operands=(6,7),max_tokens=96)",
    tokens=60_000,
    evaluate=256,
    samples=4,
    seconds=110.0,
    controls={"share of the first": pl.ledger.Logged("is:rolled-in", last=0)},
)
