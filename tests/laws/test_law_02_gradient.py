"""Law 2: the gradient does not depend on micro-batch split, padding or packing, coupled losses included (float64, 1e-6)."""

import asyncio
from dataclasses import replace

import pytest
import torch
from palaestra.models.forward import forward
from palaestra.recipes.base import dpo, grpo, ppo, reinforce, sft
from palaestra.run.driver import prepare
from palaestra.step import start, step
from palaestra.types import Batch
from palaestra.update import backward

RECIPES = {
    "grpo": grpo.build(kl=0.1),
    "ppo": ppo.build(),
    "reinforce": reinforce.build(),
    "dpo": dpo.build(),
    "sft": sft.build(),
}


def caught_batch(recipe, ctx):
    caught = {}

    def catch(ctx, name, learner, batch, state):
        caught["batch"] = batch
        return {"skipped": 0.0}, state

    held = replace(recipe, learners={"policy": replace(recipe.learners["policy"], update=catch)})
    prepare(held, ctx)
    asyncio.run(step(held, ctx, start(3)))
    return caught["batch"]


@pytest.mark.parametrize("name", RECIPES)
def test_split_and_padding(name, context, small):
    recipe, ctx = (
        small(RECIPES[name], **({"schedule.prompts": 6} if name == "sft" else {"schedule.prompts": 4})),
        context(),
    )
    batch = caught_batch(recipe, ctx)
    batch = replace(batch, columns={k: v.double() if v.is_floating_point() else v for k, v in batch.columns.items()})
    model, objective = ctx.model("policy"), recipe.learners["policy"].objective
    model.module.double()
    for head in model.heads.values():
        head.double()
    generator = torch.Generator().manual_seed(1)
    with torch.no_grad():  # off the sampling policy, so that every term has a gradient
        for p in model.trainable():
            p += 0.02 * torch.randn(p.shape, generator=generator, dtype=p.dtype)

    told = {}

    def gradient(batch: Batch, budget: int, packed: bool = False) -> torch.Tensor:
        """The metrics of any split, the loss among them, must be those of the first."""
        for p in model.trainable():
            p.grad = None
        found = backward(lambda b: forward(model, b, objective.needs), objective, batch, budget, packed)
        found = {k: float(v) for k, v in found.items()}
        assert found == pytest.approx(told.setdefault("metrics", found), rel=1e-6, abs=1e-9)
        return torch.cat([p.grad.flatten() for p in model.trainable() if p.grad is not None])

    whole = gradient(batch, 10**9)
    assert whole.norm() > 0
    for budget in (1, 150, 400):
        assert float((gradient(batch, budget) - whole).norm() / whole.norm()) < 1e-6
        assert float((gradient(batch, budget, packed=True) - whole).norm() / whole.norm()) < 1e-6
    padded = {k: torch.nn.functional.pad(v, (0, 17)) if v.dim() == 2 else v for k, v in batch.columns.items()}
    padded["temperature"] = torch.where(padded["temperature"] == 0, 1.0, padded["temperature"])
    wide = replace(batch, columns=padded)
    assert float((gradient(wide, 10**9) - whole).norm() / whole.norm()) < 1e-6
