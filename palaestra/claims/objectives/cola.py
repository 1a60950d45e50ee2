"""The claim of cola: CoLA: latent actions for LLM control."""

import palaestra as pl
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


EXPERIMENT = pl.Experiment(
    claim="After 24,000 sampled tokens of reinforcement learning on T-rec, CoLA solves 2 points "
    "more held-out problems within 8 samples than GRPO on tokens.",
    arms={
        "grpo": pl.vary(pl.recipe("grpo"), optimiser=pl.AdamW(lr=3e-4)),
        "cola": two_stages(3e-3),
        "codes-only": construction_recipe(),
    },
    expect=pl.Greater("cola", than="grpo"),
    falsified_if="pass@8 of CoLA is less than 2 points above that of GRPO",
    measure=pl.Final("sampled_after.pass@8.mean"),
    metric="held-out pass@8 (temperature 1)",
    task="rec",
    tokens=24_000,
    evaluate=256,
    samples=8,
    seconds=75,
    controls={
        "accuracy": pl.Final(),
        "pass@1": pl.Final("sampled_after.pass@1.mean"),
        "entropy": pl.Logged("entropy_sampled"),
        "entropy of the codes used (nats, of 2.77)": pl.Logged("policy_code_usage"),
        "variation of the next token between codes": pl.Logged("policy_code_steering"),
    },
    note="CoLA's codes are made first, in a part of their own with as many tokens again, sampled "
    "by the start model: about 160 steps of AdamW at 1e-3, without a reward; codes-only is this "
    "part alone. GRPO moves the whole model and CoLA a head, so each has the rate with the best "
    "held-out pass@1 of four tried on another seed: GRPO of 1e-4, 3e-4, 1e-3 and 3e-3 (the first "
    "three alike), CoLA of 3e-4, 1e-3, 3e-3 and 1e-2. Pass@8 stands for the diversity that the "
    "paper measures by embeddings.",
)
