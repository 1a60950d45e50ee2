"""OREO: residuals by token, step and response, by hand, and what it learns from."""

import asyncio
from dataclasses import replace

import numpy as np
import pytest
import torch
from palaestra.explanation.method import explain
from palaestra.models.load import weights_sha256
from palaestra.objective.residual import Balance, PathConsistency, ValueConsistency
from palaestra.recipes.objectives import oreo
from palaestra.run.driver import prepare
from palaestra.step import start, step
from palaestra.types import Example, Group, Row, Segment
from palaestra.update import pack

from tests.objective.helpers import balance, column_batch, out_of
from tests.recipes.objectives.helpers import near


def test_oreo_reference_values():
    """beta .5, l = [.2, -.1], R = 1, V = [.6, .8]: residuals [-.35, -.25], losses .0925, dL_pi/dl = [-.175, -.125]."""
    group = [{"reward": 1, "logp": [-0.8, -1.1], "ref_logp": [-1, -1], "critic_value": [0.6, 0.8]}]
    recipe = oreo.build(beta=0.5, alpha=0.0)
    assert explain(recipe, [group])["token_weights"][0][0] == pytest.approx([0.175, 0.125])
    (policy, logp), (value, values) = consistent([0.2, -0.1], [0.6, 0.8], reward=1.0)
    assert [float(policy.detach()), float(value.detach())] == pytest.approx([0.0925, 0.0925])
    assert torch.autograd.grad(value, values)[0][0, 1:].tolist() == pytest.approx([-0.35, -0.25])  # 2 delta / T
    assert torch.autograd.grad(policy, logp)[0][0, 1:].tolist() == pytest.approx([-0.175, -0.125])


def test_oreo_by_response_is_trajectory_balance_with_a_learned_baseline():
    """One residual, V(s_0) - R + beta sum l = .6 - 1 + .05 = -.35; every token has the slope 2 beta delta."""
    loss, logp = consistent([0.2, -0.1], [0.6, 0.8], reward=1.0, level="response")[0]
    assert torch.autograd.grad(loss, logp)[0][0, 1:].tolist() == pytest.approx([-0.35, -0.35])
    balanced = balance(Balance(beta=0.5, centred=False), [0.1], [1 - 0.6])[1]  # the same residual under 1/2
    assert balanced == pytest.approx([-0.35 / 2])


def test_oreo_vanishes_where_the_value_is_right():
    """l = 0 everywhere: V* = R at every prefix."""
    (policy, logp), (value, _) = consistent([0.0, 0.0, 0.0], [1.0, 1.0, 1.0], reward=1.0)
    assert float(policy.detach()) == float(value.detach()) == 0.0
    assert not torch.autograd.grad(policy, logp)[0].any()


def consistent(ratios, values, reward, level="token"):
    """The losses of the policy and of the value, each with what it moves, for beta = 1/2."""
    T = len(ratios)
    padded = lambda x: np.array([0.0, *x])
    row = Row(segments=(Segment(ids=(0,)), Segment(ids=(1,) * T, logp=(0.0,) * T, trained=True, policy="policy")))
    columns = {
        "reward": reward,
        "ref_logp": np.zeros(T + 1),
        "policy_logp": padded(ratios),
        "critic_value": padded(values),
    }
    batch = pack([Example(row=row, columns=columns)], "policy", torch.float64)
    logp, value = (torch.tensor(padded(x)[None], requires_grad=True) for x in (ratios, values))
    losses = (
        PathConsistency(beta=0.5, level=level)({"logp": logp}, batch)[0],
        ValueConsistency(beta=0.5)({"value": value}, batch)[0],
    )
    return (losses[0], logp), (losses[1], value)


def test_oreo_learns_from_the_start_models_answers(context, small):
    recipe, ctx, state = small(oreo.build()), context(), start(0)
    prepare(recipe, ctx)
    for _ in range(2):
        state, metrics = asyncio.run(step(recipe, ctx, state))
    episodes = [e for g in ctx.seen for e in g.episodes]
    assert all(e.oldest() is None for e in episodes)  # offline data have no age
    signals = ctx.measure(ctx.seen, (("ref", "logp"),))
    for g, group in enumerate(ctx.seen):
        for i, e in enumerate(group.episodes):
            view = e.rows[0].view("policy")
            assert signals[g][i][0]["ref_logp"][view.trained_T] == pytest.approx(view.logp_T[view.trained_T], abs=1e-5)
    assert metrics["critic/value_error"] > 0 and metrics["policy/policy_error"] > 0
    assert (
        weights_sha256(ctx.model("policy")) != weights_sha256(ctx.model("ref")) != weights_sha256(ctx.model("critic"))
    )


def test_oreo_by_step():
    """Steps {0, 1} and {2}; beta .5, l = [.2, -.1, .4], V at the steps' starts .6 and .8, R = 1.

    Step 0: .6 - 1 + .5 (.1 + .4) = -.15, carried by two tokens; step 1: .8 - 1 + .5 (.4) = 0. Loss 2 (.0225) / 3, slope of
    each l of step 0: 2 * beta * (2 * -.15) / 3; of step 1: 0, for its l in step 0's residual is held still.
    """
    batch = column_batch(3, reward=[1.0], ref_logp=[[-1.0] * 3], critic_value=[[0.6, 9.0, 0.8]], step=[[0.0, 0.0, 1.0]])
    out = out_of(batch, logp=[[-0.8, -1.1, -0.6]])
    loss, _ = PathConsistency(beta=0.5, level="step")(out, batch)
    assert loss.item() == near(2 * 0.15**2 / 3)
    slope = torch.autograd.grad(loss, out["logp"])[0][0, 1:].tolist()
    assert slope == near([2 * 0.5 * 2 * -0.15 / 3] * 2 + [0.0])


def test_one_token_steps_are_oreo_by_token():
    columns = {"reward": [1.0, 0.0], "ref_logp": [[-1.0, -2.0], [-0.5]], "critic_value": [[0.6, 0.8], [0.1]]}
    batch = column_batch(2, 1, **columns, step=[[0.0, 1.0], [0.0]])
    out = out_of(batch, logp=[[-0.8, -1.1], [-0.6]])
    found = [PathConsistency(beta=0.5, level=level)(out, batch)[0] for level in ("token", "step")]
    assert found[0].item() == near(found[1].item())
    slopes = [torch.autograd.grad(loss, out["logp"], retain_graph=True)[0] for loss in found]
    assert torch.allclose(*slopes)


@pytest.mark.parametrize(("right", "reward"), [(True, 1.0), (0, 0.0)])
def test_answers_of_the_data_are_learned_from(context, right, reward):
    """Without sampling; by step each line of a recorded answer is an action."""
    ctx = context()
    task = replace(ctx.bench.tasks.task("train", 0), meta={"response": "1+2=3\n= 3", "right": right})
    recipe = oreo.build(answers="data", level="step")
    (made,) = asyncio.run(recipe.collect(ctx, ("k",), Group(task=task))).episodes
    assert made.total == reward and len(made.facts["step_ends"]) == 2
    found, _ = recipe.learners["critic"].credit([Group(task=task, episodes=(made,))], [[[{}]]], {})
    assert [x.columns["reward"] for x in found] == [reward]
