"""Options that papers or codes describe beside the default train."""

import asyncio
import math

import pytest
from palaestra.recipes.base import grpo
from palaestra.recipes.objectives import (
    confucius3,
    effective_rank,
    high_entropy_tokens,
    igpo,
    incorrect_synthetic_data,
    oreo,
    rec,
    spa_rl,
)
from palaestra.run.driver import prepare
from palaestra.settings.overrides import make_smallest
from palaestra.step import start, step

STEPS = {
    "rec kimi": (rec.build("all", tau=1.0, regulariser="kimi"), "chain"),
    "rec drop std": (rec.build(data="drop", std=True), "chain"),
    "igpo kl": (igpo.build(kl=0.01), "hop"),
    "spa kl": (spa_rl.build(kl=0.1), "grid"),
    "oreo step": (oreo.build(level="step"), "chain"),
    "oreo step on-policy": (oreo.build(level="step", frozen=False), "chain"),
    "sft term": (incorrect_synthetic_data.build(sft=0.1), "chain"),
    "gae rank": (effective_rank.build(base="gae", kl=0.1), "chain"),
    "micro": (high_entropy_tokens.build(micro=True), "chain"),
    "ter squared": (confucius3.build(phase=1, squared=True), "chain"),
    "grpo": (grpo.build(), "chain"),
}


@pytest.mark.parametrize("name", STEPS)
def test_variants_train(name, context):
    recipe, world = STEPS[name]
    recipe, ctx, state = make_smallest(recipe), context(world), start(0)
    prepare(recipe, ctx)
    for _ in range(2):
        state, metrics = asyncio.run(step(recipe, ctx, state))
    assert all(math.isfinite(v) for k, v in metrics.items() if k.endswith("loss"))
