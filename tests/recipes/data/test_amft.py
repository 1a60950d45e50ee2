"""AMFT: who is compared with whom, what is held out, the settings of the released code, and a few steps of every arm."""

import asyncio
import math
from dataclasses import replace

import pytest
from palaestra.ledger.experiment import experiment_of
from palaestra.mixing import MixtureReadings
from palaestra.recipes.data import amft
from palaestra.run.driver import prepare
from palaestra.settings.overrides import make_smallest
from palaestra.step import start, step
from palaestra.types import Group, Reward
from palaestra.update import pack
from palaestra.values import flatten, override


def collected(ctx, recipe, index):
    return asyncio.run(recipe.collect(ctx, ("k", index), Group(task=ctx.bench.tasks.task("train", index))))


def test_a_task_is_attempted_or_held_out(context):
    """Eight samples and a demonstration of the one, a demonstration alone of the other, and the same at every time."""
    ctx, recipe = context("chain"), amft.build(held=0.5)
    for index in range(6):
        group = collected(ctx, recipe, index)
        kept = recipe.collect.keeps(group.task)
        assert [e.recorded for e in group.episodes] == ([True] if kept else [False] * 8 + [True])
        facts = [(e.facts.get("demonstration", 0), e.facts.get("held", 0)) for e in group.episodes]
        assert facts == ([(1, 1)] if kept else [(0, 0)] * 8 + [(1, 0)])
    assert {amft.build(held=h).collect.keeps(ctx.bench.tasks.task("train", 0)) for h in (0.0, 1.0)} == {False, True}


def test_the_demonstration_is_in_no_baseline(context):
    """One of eight is right: A is (1 - 1/8) / std and (0 - 1/8) / std of the eight, as without a demonstration."""
    ctx, recipe = context("chain"), amft.build(held=0.0)
    group = collected(ctx, recipe, 0)
    paid = [Reward(total=float(i == 0)) for i in range(8)]
    episodes = tuple(replace(e, reward=r) for e, r in zip(group.episodes, paid, strict=False))
    group = replace(group, episodes=(*episodes, group.episodes[-1]))
    learner = recipe.learners["policy"]
    found, _ = learner.credit([group], ctx.measure([group], learner.needs), {})
    batch = pack(found, "policy")
    given = [float(a[m > 0].mean()) for a, m in zip(batch["advantage"], batch.mask, strict=True)]
    std = math.sqrt(1 / 8)  # ddof 1
    assert given == pytest.approx([7 / 8 / std] + [-1 / 8 / std] * 7 + [0], abs=1e-4)
    assert batch.totals["is:demonstration"][1] == 1 and batch.totals["not:demonstration"][1] == 8


def test_the_weight_can_cross_its_range_within_a_run():
    """A gain of 1 at each look-ahead moves it from its start to its bound in 50 updates."""
    update = amft.build().learners["policy"].update
    weight, rule = 0.5, update.rule
    for n in range(1, 51 - update.warmup):
        gain = float(n % update.every == 0)
        weight = rule(weight, MixtureReadings(gain=gain, entropy=0.4, target=0.4))
    assert weight >= 0.9
    ends = {"objective.parts.0.low": 0.2, "objective.parts.0.high": 0.2, "objective.parts.1.weight": 0.01}
    found = flatten(amft.build()) | {"rule.low": rule.low, "rule.high": rule.high}
    for end, value in {**ends, "rule.low": 0.05, "rule.high": 0.95}.items():
        assert {v for k, v in found.items() if k.endswith(end)} == {value}, end
    assert amft.build(rule="entropy").learners["policy"].update.every == 0


def test_the_card_says_what_is_known_of_the_paper():
    for text in (amft.__doc__, amft.CARD.source):
        assert "withdraw" in text and "random tensors" in text and "ours alone" in text


@pytest.mark.parametrize("arm", list(experiment_of("amft").arms))
def test_steps_of_every_arm(arm, context):
    """The weight is logged in every step, begins at 1 in the warm-up, and no update is skipped."""
    recipe = make_smallest(experiment_of("amft").arms[arm].parts["rl"].runnable)
    recipe, ctx, state = override(recipe, "schedule.prompts", 4), context("chain"), start(0)
    prepare(recipe, ctx)
    seen = []
    for _ in range(6):
        state, metrics = asyncio.run(step(recipe, ctx, state))
        seen.append(metrics)
    assert [m["mix/weight"] for m in seen[:2]] == [1.0, 1.0]
    assert all(m["skipped"] == 0 and math.isfinite(m["loss"]) and 0.05 <= m["mix/weight"] <= 1 for m in seen)
    assert any("mix/gain" in m for m in seen) == (arm in ("full", "sign flipped"))
    assert all(m["mix/weight"] == 0.5 for m in seen[2:]) == (arm == "fixed")
