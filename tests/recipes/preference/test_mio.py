"""MIO as a recipe, and its claim: one loss apart from DPO, and both rewards of what was trained."""

import asyncio
from dataclasses import replace

import numpy as np
import palaestra as pl
import pytest
import torch
from palaestra.claims.overoptimisation import Overoptimisation
from palaestra.claims.preference.mio import EXPERIMENT
from palaestra.explanation.method import explain
from palaestra.models.load import trainable_copy
from palaestra.recipes.base import dpo
from palaestra.recipes.preference import mio
from palaestra.run.driver import prepare
from palaestra.step import start, step
from palaestra.types import Reward
from palaestra.values import override, vary


def test_it_is_dpo_with_another_loss():
    for pairs in ("data", "rollouts"):
        assert vary(mio.build(pairs=pairs), objective=pl.DPO()) == dpo.build(pairs=pairs)


def test_weights_of_tokens():
    """h = 0: half of a half of beta for every token of either answer."""
    group = [{"reward": 1, "length": 2, "ref_logp": [-1, -1]}, {"reward": 0, "length": 3, "ref_logp": [-1, -1, -1]}]
    found = explain(mio.build(), [group])
    assert found["token_weights"][0][0] == pytest.approx([0.025, 0.025])
    assert found["token_weights"][0][1] == pytest.approx([-0.025] * 3)
    lean = explain(mio.build(chosen=0.8), [group])["token_weights"][0]
    assert (lean[0][0], lean[1][0]) == (pytest.approx(0.04), pytest.approx(-0.01))


def test_arms_differ_in_the_loss_alone():
    losses = {n: p.parts["pairs"].runnable.learners["policy"].objective for n, p in EXPERIMENT.arms.items()}
    assert losses["mio"] == pl.objective.JensenShannon() and losses["dpo"] == pl.DPO()
    first, *others = (
        replace(p, parts={**p.parts, "pairs": pl.Part(vary(p.parts["pairs"].runnable, objective=pl.DPO()))})
        for p in EXPERIMENT.arms.values()
    )
    assert all(p == first for p in others) and not EXPERIMENT.lacks()


@pytest.mark.parametrize("arm", EXPERIMENT.arms)
def test_every_arm_steps(arm, context, small):
    recipe = small(EXPERIMENT.arms[arm].parts["pairs"].runnable)
    ctx, state = context("preferences"), start(0)
    prepare(recipe, ctx)
    for _ in range(2):
        state, metrics = asyncio.run(step(recipe, ctx, state))
    assert np.isfinite(metrics["loss"]) and metrics["updates"] == 1 and metrics["chosen"] != 0


async def letters(ctx, group):
    """A proxy: ten times the true reward, and one more for each 9 that is said."""
    gold = await ctx.bench.reward(ctx, group)
    return [Reward(total=10 * r.total + e.text.count("9")) for r, e in zip(gold, group.episodes, strict=True)]


def meter(context, moved):
    ctx = context("preferences", seed=3)
    ctx.models["trained"] = trainable_copy(ctx.model("policy"))
    with torch.no_grad():
        for p in ctx.models["trained"].module.parameters():
            p.mul_(1 + moved)
    return asyncio.run(Overoptimisation(letters, sharpness=10.0, tasks=8, samples=4).run(ctx)).metrics


def test_what_did_not_move_has_no_gap(context):
    found = meter(context, 0.0)
    assert found["gold"] == found["gold_start"] and found["proxy"] == found["proxy_start"]
    assert found["gap"] == 0 and found["ranked"] == 0.5
    assert found["kl"] == found["chosen"] == found["rejected"] == 0


def test_what_was_damaged_is_seen(context):
    found = meter(context, 0.2)
    assert found["kl"] > 0 and found["chosen"] < 0
    rise = found["proxy"] - found["proxy_start"], found["gold"] - found["gold_start"]
    assert found["gap"] == pytest.approx(rise[0] - 10 * rise[1])
    assert found["accuracy_before"]["n"] == found["accuracy_after"]["n"] == 32


def test_the_start_is_shown_at_its_size():
    assert override(mio.build(), "beta", 0.3).learners["policy"].objective.beta == 0.3
