"""SRFT: the weights, the four means, who is paid what, and a few steps of every arm."""

import asyncio
import math
from dataclasses import replace

import pytest
import torch
from palaestra.curriculum.pool import Mixed
from palaestra.errors import UserError
from palaestra.ledger.experiment import experiment_of
from palaestra.recipes.data import srft
from palaestra.run.driver import prepare
from palaestra.settings.overrides import make_smallest
from palaestra.step import start, step
from palaestra.types import Group, Reward
from palaestra.update import pack
from palaestra.values import override

from tests.objective.helpers import batch_of, out_of
from tests.recipes.objectives.helpers import advantages, scored

NONE = {"right": 0.0, "wrong": 0.0, "demonstration": 0.0}


def loss_of(*kinds, logp, entropy, advantage=None, **options):
    """The loss, its gradients and metrics of rows of such kinds."""
    marks = {f"is:{k}": [[float(k == kind)] * len(x) for kind, x in zip(kinds, logp, strict=True)] for k in NONE}
    rows = [[a] * len(x) for a, x in zip(advantage or [0.0] * len(logp), logp, strict=True)]
    batch = batch_of(*rows, **marks)
    out = out_of(batch, logp=logp, entropy=entropy)
    loss, metrics = srft.build(**options).learners["policy"].objective(out, batch)
    loss.backward()
    return loss.item(), out["logp"].grad, out["entropy"].grad, metrics


@pytest.mark.parametrize(
    ("entropy", "options", "weights"),
    [(math.log(2), {}, (0.25, 0.2)), (0.0, {}, (0.5, 0.1)), (math.log(2), {"own_sign": -1.0}, (0.25, 0.05)),
     (math.log(2), {"per": 2.0}, (0.125, 0.4)), (math.log(8), {"most": 4.0}, (0.125, 0.4))],
)  # fmt: skip
def test_the_weights_follow_the_entropy(entropy, options, weights):
    """H = ln 2: 0.25 and 0.20; H = 0: 0.5 and 0.1. Both are those of the whole batch, whoever wrote it."""
    loss, grads, h, told = loss_of(
        "demonstration", "right", logp=[[-1.0], [-1.0, -1.0]], entropy=[[3 * entropy], [0, 0]], **options
    )
    assert (float(told["weight/imitation"]), float(told["weight/own"])) == pytest.approx(weights)
    assert loss == pytest.approx(sum(weights))  # -log pi is 1 everywhere
    assert h is None or not h.any()  # no gradient through the entropy
    assert grads[0, 1] == pytest.approx(-weights[0])  # A = 0: imitation alone
    assert grads[1, 1:].tolist() == pytest.approx([-weights[1] / 2] * 2)


def test_constant_weights_are_those_of_entropy_0():
    loss, *_ = loss_of("demonstration", "right", logp=[[-1.0], [-2.0]], entropy=[[9.0], [9.0]], adaptive=False)
    assert loss == pytest.approx(0.5 + 0.2)


def test_every_mean_is_over_its_own_tokens():
    """Two wrong answers of 1 and 3 tokens: their mean log pi is that of four tokens, whatever else is there."""
    wrong = [[-1.0], [-2.0, -2.0, -2.0]]
    for more in ([], [[-1.0] * 5]):
        kinds = ["wrong", "wrong", *["right"] * len(more)]
        loss, grads, *_ = loss_of(*kinds, logp=[*wrong, *more], entropy=[[0.0] * len(x) for x in [*wrong, *more]])
        assert loss == pytest.approx(-7 / 4 + 0.1 * len(more))
        assert grads[0, 1] == pytest.approx(1 / 4)  # downhill makes it less likely


def test_no_right_answer_and_no_demonstration():
    loss, grads, *_ = loss_of("wrong", logp=[[-1.0]], entropy=[[0.0]])
    assert loss == pytest.approx(-1) and torch.isfinite(grads).all()


def test_a_floor_leaves_out_what_is_already_unlikely():
    logp = [[math.log(0.5), math.log(1e-4)]]
    loss, grads, *_ = loss_of("wrong", logp=logp, entropy=[[0.0, 0.0]], floor=1e-3)
    assert loss == pytest.approx(math.log(0.5) / 2) and grads[0, 1:].tolist() == [0.5, 0]


@pytest.mark.parametrize(("external", "gain"), [("plain", 0.2), ("luffy", 2 / 3)])
def test_a_demonstration_is_of_unknown_authors(external, gain):
    """rho = pi = .2 and A = 1.5: -A rho, which the clip at .8 does not reach; LUFFY shapes it to pi / (pi + .1)."""
    both = [
        loss_of("demonstration", logp=[[math.log(0.2)]], entropy=[[0.0]], advantage=[a], external=external)[0]
        for a in (1.5, 0.0)
    ]
    assert both[0] - both[1] == pytest.approx(-1.5 * gain)


def test_own_answers_are_paid_plus_and_minus_one():
    assert advantages(srft.build(), *scored(1, 0, 0, 1)) == [1, -1, -1, 1]
    assert advantages(srft.build(), *scored(1, 1)) == [1, 1]  # no gate: equal rewards teach as well


def test_a_demonstration_of_a_failing_group_has_a_large_advantage(context):
    """Nine in the group and one right: A = (1 - 1/9) / std = 8/3, ddof 1."""
    ctx, recipe = context("chain"), srft.build()
    group = asyncio.run(recipe.collect(ctx, ("k", 1), Group(task=ctx.bench.tasks.task("train", 0))))
    paid = [replace(e, reward=Reward(total=float(i == 8))) for i, e in enumerate(group.episodes)]
    group = replace(group, episodes=tuple(paid))
    learner = recipe.learners["policy"]
    found, _ = learner.credit([group], ctx.measure([group], learner.needs), {})
    batch = pack(found, "policy")
    given = [float(a[m > 0].mean()) for a, m in zip(batch["advantage"], batch.mask, strict=True)]
    assert given == pytest.approx([-1.0] * 8 + [8 / 3], abs=1e-4)
    kinds = [batch.totals[f"is:{k}"][1] for k in ("demonstration", "right", "wrong")]
    assert kinds == [1, 0, 8]


@pytest.mark.parametrize("arm", [a for a in experiment_of("srft").arms if a != "imitation"])
def test_two_steps_of_every_arm(arm, context):
    recipe = make_smallest(experiment_of("srft").arms[arm].parts["rl"].runnable)
    ctx, state = context("chain"), start(0)
    prepare(recipe, ctx)
    for _ in range(2):
        state, metrics = asyncio.run(step(override(recipe, "schedule.prompts", 2), ctx, state))
        assert metrics["skipped"] == 0 and math.isfinite(metrics["loss"]) and math.isfinite(metrics["grad_norm"])


def test_groups_of_equal_rewards_are_kept_and_the_entropy_is_that_of_the_whole_batch():
    recipe = srft.build()
    with pytest.raises(UserError, match="all equal"):
        replace(recipe, pool=Mixed())
    assert recipe.learners["policy"].objective.couples == "batch"  # else a part would weigh itself
