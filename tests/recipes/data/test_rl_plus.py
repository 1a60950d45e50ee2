"""RL-PLUS: the catalogue's values, who is in a group, and what each arm leaves out."""

import asyncio
import math
from dataclasses import replace

import numpy as np
import pytest
from palaestra.recipes.data import rl_plus
from palaestra.run.driver import prepare
from palaestra.settings.overrides import make_smallest
from palaestra.step import start, step
from palaestra.types import Group, Reward
from palaestra.update import pack
from palaestra.values import flatten, override

from tests.objective.helpers import token_gradient


def learner(**options):
    return rl_plus.build(**options).learners["policy"]


def group_of(ctx, recipe, totals):
    """The recipe's group with such rewards of its own answers."""
    sample, _, demonstrate = recipe.collect.links
    group = asyncio.run(sample(ctx, ("k", 1), Group(task=ctx.bench.tasks.task("train", 0))))
    scored = tuple(replace(e, reward=Reward(total=float(r))) for e, r in zip(group.episodes, totals, strict=True))
    return asyncio.run(demonstrate(ctx, ("k", 2), replace(group, episodes=scored)))


def external(p, A, **options):
    """Loss and gradient of one token of a demonstration with pi = pi_old = p, of a longest answer of one token."""
    from tests.objective.helpers import token_batch

    nan = float("nan")
    batch = token_batch(
        [A], nan, policy_logp=[np.array([0.0, math.log(p)])], **{"is:demonstration": [np.array([0.0, 1.0])]}
    )
    loss, grads, _ = token_gradient(learner(length=1, entropy=0.0, **options).objective, batch, logp=[math.log(p)])
    return loss, *grads["logp"]


@pytest.mark.parametrize(
    ("options", "loss"),
    [({}, -0.357771), ({"gamma": 0.0}, -0.4), ({"external": "plain"}, -0.8 * 0.2 * 0.894427),
     ({"external": "luffy", "gamma": 0.0}, -0.8 * 2 / 3)],
)  # fmt: skip
def test_the_tokens_of_a_demonstration(options, loss):
    """pi = pi_old = .2 and A = .8: pi_w = .6, r = .5, C = .894427, the loss -.357771; what the arms leave out."""
    assert external(0.2, 0.8, **options)[0] == pytest.approx(loss, abs=1e-6)


def test_a_mastered_token_has_no_gradient():
    assert external(1.0, 0.8) == (0, 0)
    assert external(1.0, 0.8, gamma=0.0) == pytest.approx((-0.8, -0.8))  # r = 1


def test_seven_answers_and_a_demonstration(context):
    """One of seven is right: mean 2 / 8, so A is .75 for it and for the demonstration, -.25 for the wrong ones."""
    ctx, recipe = context("chain"), rl_plus.build()
    group = group_of(ctx, recipe, [1, 0, 0, 0, 0, 0, 0])
    assert [e.facts.get("demonstration", 0) for e in group.episodes] == [0] * 7 + [1]
    found, _ = learner().credit([group], ctx.measure([group], learner().needs), {})
    batch = pack(found, "policy")
    paid = [float(a[m > 0].mean()) for a, m in zip(batch["advantage"], batch.mask, strict=True)]
    assert paid == pytest.approx([0.75] + [-0.25] * 6 + [0.75])
    assert batch.totals["is:demonstration"][1:] == (1, 1)


def test_a_rescue_takes_the_place_of_one_of_eight_wrong_answers(context):
    ctx, recipe = context("chain"), rl_plus.build(rescue=True)
    group = group_of(ctx, recipe, [0] * 8)
    assert sorted(e.total for e in group.episodes) == [0] * 7 + [1]
    assert not any(e.facts.get("demonstration") for e in group_of(ctx, recipe, [1] + [0] * 7).episodes)


@pytest.mark.parametrize(
    "options", [{}, {"external": "plain"}, {"external": "luffy", "gamma": 0.0}, {"external": "none"}, {"clip": True}]
)
def test_the_own_tokens_without_a_clip(options):
    """rho = 1.5 and A = 1: -1.5 with a gradient; the clip gives -1.2 and none. A group without a demonstration is Dr. GRPO."""
    from tests.objective.helpers import token_batch

    batch = token_batch([1.0], -1.0, policy_logp=[np.zeros(2)], **{"is:demonstration": [np.zeros(2)]})
    objective = learner(length=1, entropy=0.0, **options).objective
    loss, grads, _ = token_gradient(objective, batch, logp=[math.log(1.5) - 1])
    clipped = options.get("clip", False)
    assert (loss, grads["logp"][0]) == pytest.approx((-1.2, 0) if clipped else (-1.5, -1.5))


def test_without_external_nothing_is_demonstrated(context):
    group = asyncio.run(rl_plus.build(external="none").collect(ctx := context("chain"), ("k", 1), first_of(ctx)))
    assert len(group.episodes) == 7 and not any("demonstration" in e.facts for e in group.episodes)


def first_of(ctx):
    return Group(task=ctx.bench.tasks.task("train", 0))


def test_settings_of_the_released_code():
    found = flatten(rl_plus.build())
    ends = {
        "links.0.n": 7, "update.minibatches": 2, ".gamma": 0.5, ".density": 1.0, "2.weight": 0.001, ".length": None,
    }  # fmt: skip
    for end, value in ends.items():
        values = {v for k, v in found.items() if k.endswith(end)}
        assert values == {value}, end
    assert not any(k.endswith((".low", ".ddof")) for k in found)  # no clip and no division by a deviation


def test_two_steps_with_demonstrations_are_finite(context):
    """A demonstration beside samples: no update is skipped, with every surrogate."""
    for options in ({}, {"external": "plain"}, {"external": "luffy"}, {"clip": True}, {"rescue": True}):
        recipe = make_smallest(override(rl_plus.build(**options), "minibatches", "2"))
        ctx, state = context("chain"), start(0)
        prepare(recipe, ctx)
        for _ in range(2):
            state, metrics = asyncio.run(step(recipe, ctx, state))
            assert metrics["skipped"] == 0 and math.isfinite(metrics["loss"]) and math.isfinite(metrics["grad_norm"])
