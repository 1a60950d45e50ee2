"""CoLA: clipped ratios of codes, and what moves in each of its phases."""

import asyncio

import numpy as np
import pytest
import torch
from palaestra.explanation.method import explain
from palaestra.recipes.objectives import cola
from palaestra.run.driver import prepare
from palaestra.step import start, step


def test_cola_clips_the_ratio_of_codes():
    """Policy (.7, .3) against (.5, .5): ratio 1.4, beyond 1.2 at A = 1.5; one of four right, ddof 1."""
    old, new = [float(np.log(0.5))], [float(np.log(0.7))]
    group = [{"reward": r, "behaviour_logp": old, "logp": new} for r in (1, 0, 0, 0)]
    found = explain(cola.build(), [group])
    assert found["advantages"][0] == pytest.approx([1.5, -0.5, -0.5, -0.5], abs=1e-5)
    assert found["token_weights"][0][0] == [0.0]
    assert found["token_weights"][0][1] == pytest.approx([-0.5 * 1.4 / 4], abs=1e-5)


def test_a_latent_head_starts_as_the_model_and_only_it_moves(context, small, tmp_path):
    from palaestra.models.load import load, save

    ctx, state = context(), start(0)
    recipe = small(cola.build(construct=1), **{"collect.then.links.0.n": 4, "collect.first.links.0.n": 4})
    hidden = torch.randn(3, ctx.model("policy").width)
    plain = ctx.model("policy").logits(hidden).log_softmax(-1)
    trunk = [p.clone() for p in ctx.model("policy").module.parameters()]
    prepare(recipe, ctx)
    model = ctx.model("policy")
    assert torch.allclose(model.logits(hidden), plain, atol=1e-5)
    state, metrics = asyncio.run(step(recipe, ctx, state))
    assert metrics["coded_nll"] > 0
    before = {n: p.clone() for n, p in model.heads["latent-16"].named_parameters()}
    assert before["shift.weight"].any()
    state, metrics = asyncio.run(step(recipe, ctx, state))
    changed = {n for n, p in model.heads["latent-16"].named_parameters() if not torch.equal(p, before[n])}
    assert "coded_nll" not in metrics and changed <= {"think.weight", "think.bias", "policy.weight", "policy.bias"}
    assert all(torch.equal(a, b) for a, b in zip(trunk, model.module.parameters(), strict=True))
    save(model, tmp_path)
    again = load(str(tmp_path))
    assert torch.equal(again.logits(hidden), model.logits(hidden))
    assert set(again.named_trainable()) == set(model.named_trainable()) == {f"head.latent-16.{n}" for n in before}
