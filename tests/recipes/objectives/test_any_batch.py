"""However a batch is split, and whatever stands in masked slots: the same loss and gradient."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from palaestra import catalogue
from palaestra.recipes.objectives import apo, asymre, confucius3, dr_grpo, egsw, lite_ppo, nsr, rec
from palaestra.types import Example, Group, Reward, Row, Segment
from palaestra.update import backward, pack

from tests.fake import FakeContext, task
from tests.recipes.objectives.helpers import PLAIN

RECIPES = {i: catalogue.recipe(i) for i in PLAIN}
RECIPES |= {"confucius3, phase 1": confucius3.build(phase=1), "rec, ring": rec.build("ring", weighted=True)}


@pytest.mark.parametrize("name", RECIPES)
def test_law_02_gradient_of_any_split(name):
    ctx, learner = FakeContext(), RECIPES[name].learners["policy"]
    asked = task("t", (0,), ())
    groups = [
        Group(
            task=asked,
            episodes=tuple(
                replace(ctx.sample(asked, ("law 2", g, n), length=1 + n), reward=Reward(total=float(n % 2)))
                for n in range(4)
            ),
        )
        for g in range(2)
    ]
    examples, _ = learner.credit(groups, ctx.measure(groups, learner.needs), {})
    batch, found = pack(examples, dtype=torch.float64), []
    for budget in (1, 12, 1000):
        ctx.model("policy").zero_grad()
        told = backward(ctx.forward("policy", learner.objective.needs), learner.objective, batch, budget)
        gradient = torch.cat([p.grad.flatten() for p in ctx.model("policy").parameters()])
        found.append((gradient, {k: float(v) for k, v in told.items()}))
    assert found[0][0].abs().max() > 0
    for gradient, metrics in found[1:]:
        assert torch.allclose(found[0][0], gradient, rtol=1e-9, atol=1e-14)
        assert metrics == pytest.approx(found[0][1], rel=1e-9, abs=1e-12)


@pytest.mark.parametrize("module", [apo, asymre, confucius3, dr_grpo, egsw, lite_ppo, nsr, rec])
def test_masked_slots_may_hold_anything(module):
    """A NaN outside the trained tokens changes neither loss nor gradient."""
    learner = module.build().learners["policy"]
    needs = {"logp", "entropy"}
    found = []
    for rubbish in (0.0, float("nan")):
        rows, columns = [], []
        for i, a in enumerate((1.0, -1.0)):
            rows.append(
                Row(
                    segments=(
                        Segment(ids=(0, 5), logp=(rubbish, rubbish)),
                        Segment(ids=(1,) * (i + 1), trained=True, logp=(-1.0,) * (i + 1)),
                    )
                )
            )
            quiet = np.array([rubbish, rubbish] + [-1.2] * (i + 1))
            columns.append(dict.fromkeys(("ref_logp", "policy_logp", "kl_weight"), quiet) | {"advantage": quiet * a})
        batch = pack([Example(row=r, columns=c) for r, c in zip(rows, columns, strict=True)], dtype=torch.float64)
        out = {n: (-0.9 * batch.mask).requires_grad_() for n in needs}
        loss, _ = learner.objective(out, batch)
        found.append([loss.item(), torch.autograd.grad(loss, out["logp"])[0].tolist()])
    assert found[0] == found[1] and np.isfinite(found[0][0])
