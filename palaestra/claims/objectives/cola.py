"""The claim of cola: CoLA: latent actions for LLM control."""

from dataclasses import replace
from typing import Any

import palaestra as pl
from palaestra.claims.starts import TWO_POINTS
from palaestra.recipes.objectives.cola import action_recipe, build


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
    claim="After 48,000 sampled tokens on T-rec, what CoLA solves of the held-out problems within 8 "
    "samples, above what the start does at the temperature with the same pass@1, is 2 points more "
    "than for GRPO on tokens.",
    quantity="MATH-500 42.4 against 38.2 without latent actions, and more diverse answers by "
    "embeddings",
    start=pl.ledger.Untrained(temperatures=(0.3, 0.5, 0.7, 0.85, 1.0, 1.2, 1.5)),
    arms={
        "grpo": Twice(pl.recipe("grpo")),
        "cola": two_stages(3e-3),
        "codes-only": construction_recipe(),
    },
    expect=pl.ledger.Greater("cola", than="grpo", why=TWO_POINTS),
    falsified_if="pass@8 of CoLA, less the start's at the same pass@1, is less than 2 points above "
    "that of GRPO, or not above the start's",
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
    note="CoLA's codes are made first, in a part of their own with as many tokens again, sampled "
    "by the start model: about 160 steps of AdamW at 1e-3, without a reward; codes-only is this "
    "part alone, with half of the tokens. The start has as many samples at each of seven "
    "temperatures. GRPO moves the whole model and CoLA a head, so each has three rates of its own to "
    "choose from. Pass@8 stands for the diversity that the "
    "paper measures by embeddings.",
)
