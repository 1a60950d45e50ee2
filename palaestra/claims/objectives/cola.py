"""The claim of cola: CoLA: latent actions for LLM control."""

from dataclasses import replace
from typing import Any

import palaestra as pl
from palaestra.claims.starts import TWO_POINTS
from palaestra.recipes.objectives.cola import build

CODE_NEEDS = (("policy", "code_usage"), ("policy", "code_steering"))


def action_recipe(lr: float) -> pl.Recipe:
    """Only the second phase; logs how many codes are used, and how far they differ."""
    logged = pl.Track(tuple(f"{model}_{quantity}" for model, quantity in CODE_NEEDS))
    then = pl.Clipped(reduce="sequences") + logged
    return pl.vary(build(construct=0), objective=then, needs=CODE_NEEDS, optimiser=pl.AdamW(lr=lr))


def construction_recipe() -> pl.Recipe:
    """Only the first phase, with eight steps of the optimiser on a step's samples."""
    return pl.vary(
        build(construct=1 << 30), optimiser=pl.AdamW(lr=1e-3), update=pl.Plain(minibatches=8)
    )


def two_stages(lr: float) -> pl.Pipeline:
    return pl.Pipeline(
        parts={
            "codes": pl.Part(construction_recipe()),
            "rl": pl.Part(action_recipe(lr), model=pl.Output("codes")),
        }
    )


@pl.stage
class Twice:
    """A recipe with twice the budget: as many tokens as both parts of CoLA."""

    recipe: pl.Recipe

    async def run(self, ctx: Any) -> pl.Result:
        if ctx.plan.tokens:
            ctx.plan = replace(ctx.plan, tokens=2 * ctx.plan.tokens)
        return await ctx.train(self.recipe)


EXPERIMENT = pl.ledger.Experiment(
    words=__file__,
    start=pl.ledger.Untrained(temperatures=(0.3, 0.5, 0.7, 0.85, 1.0, 1.2, 1.5)),
    arms={
        "grpo": Twice(pl.recipe("grpo")),
        "cola": two_stages(3e-3),
        "codes-only": construction_recipe(),
    },
    expect=pl.ledger.Greater("cola", than="grpo", why=TWO_POINTS),
    reasons=(
        pl.ledger.Needs("start", "training, and not a temperature"),
        pl.ledger.Needs("codes-only", "reinforcement learning of the codes"),
    ),
    constants={
        "grpo": {"optimiser.lr": (1e-4, 3e-4, 1e-3)},
        "cola": {"rl.optimiser.lr": (1e-3, 3e-3, 1e-2)},
    },
    measure=pl.ledger.OverMatchedStart(8),
    metric="held-out pass@8 (temperature 1) above that of the start at the same pass@1",
    task="rec",
    tokens=24_000,
    evaluate=256,
    samples=8,
    seconds=75,
    controls={
        "pass@8": pl.ledger.Final("sampled_after.pass@8.mean"),
        "entropy": pl.ledger.Logged("entropy_sampled"),
        "entropy of the codes used (nats, of 2.77)": pl.ledger.Logged("policy_code_usage"),
        "variation of the next token between codes": pl.ledger.Logged("policy_code_steering"),
    },
)
