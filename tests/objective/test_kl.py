"""The KL estimators on softmax tables, where every expectation is a sum over all tokens: values, and gradients as they are used.

P = pi(a) of one state with four tokens, or of two tokens in a row, the second's distribution depending on the first.
"""

import asyncio
import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from palaestra.credit.gae import Gae, kl_needs
from palaestra.credit.links import Chain
from palaestra.credit.penalty import LessKL
from palaestra.objective.kl import kl_terms
from palaestra.objective.terms import KL, Entropy, TargetEntropy
from palaestra.recipes.base import grpo, ppo
from palaestra.recipes.objectives import oreo
from palaestra.run.driver import prepare
from palaestra.settings.overrides import make_smallest
from palaestra.step import start, step
from palaestra.types import Episode, Example, Group, Reward, Row, Segment
from palaestra.update import backward, pack

from tests.fake import FakeContext, task

KINDS = ("k1", "k2", "k3", "forward", "full")
REF = torch.tensor([0.4, 0.1, 0.3, 0.2], dtype=torch.float64)
near = lambda x: pytest.approx(x, abs=1e-12)


@pytest.fixture
def theta():
    return torch.tensor([1.0, 1.5, -1.0, 0.0], dtype=torch.float64, requires_grad=True)


def reverse(pi, ref=REF):
    return (pi * (pi / ref).log()).sum()


def forward(pi, ref=REF):
    return (ref * (ref / pi).log()).sum()


def squares(pi, ref=REF):
    """E_ref[(log ref/pi)^2] / 2."""
    return (ref * (ref / pi).log() ** 2).sum() / 2


def gradient(of, theta):
    if not of.requires_grad:
        return [0.0] * len(theta)
    return torch.autograd.grad(of, theta, retain_graph=True)[0].flatten().tolist()


def value(kind, logp_V, ref_V=REF):
    """[V] of every token."""
    if kind == "full":
        return kl_terms(logp_V, ref_V.log(), kind).expand_as(logp_V)
    return kl_terms(logp_V, ref_V.log(), kind)


# ---- one state


def test_what_they_estimate(theta):
    pi = torch.softmax(theta, -1).detach()
    mean = {k: float((pi * value(k, pi.log())).sum()) for k in KINDS}
    assert (
        mean["k1"] == near(float(reverse(pi))) and mean["k3"] == near(mean["k1"]) and mean["full"] == near(mean["k1"])
    )
    assert mean["forward"] == near(float(forward(pi))) and abs(mean["forward"] - mean["k1"]) > 0.01
    assert (value("k3", pi.log()) >= 0).all() and (value("forward", pi.log()) >= 0).all()


def test_entropy_is_rewarded():
    """The loss is minus the mean over trained tokens: entropies .5 and 1.5, and 9 of what a world said."""
    said, told = Segment(ids=(1, 2), trained=True, policy="policy", logp=(0.0, 0.0)), Segment(ids=(3,))
    batch = pack([Example(row=Row(segments=(Segment(ids=(0,)), said, told)), columns={})], dtype=torch.float64)
    entropy = torch.tensor([[0, 0.5, 1.5, 9.0]], dtype=torch.float64, requires_grad=True)
    loss, metrics = Entropy()({"entropy": entropy}, batch)
    assert (float(loss.detach()), float(metrics["entropy"])) == (-1.0, 1.0)
    assert torch.autograd.grad(loss, entropy)[0].tolist() == [[0, -0.5, -0.5, 0]]


def test_the_forward_estimate_of_a_far_token_is_bounded():
    """log q within +-10: q log q - q + 1 is 9 e^10 + 1 at 25 nats below the reference, 1 - 11 e^-10 at 25 above."""
    found = kl_terms(torch.tensor([-25.0, 25.0], dtype=torch.float64), torch.zeros(2, dtype=torch.float64), "forward")
    assert found.tolist() == pytest.approx([9 * math.exp(10) + 1, 1 - 11 * math.exp(-10)], rel=1e-12)


def test_k2_is_biased_by_the_third_order():
    """log pi = log ref + e z: E[k2] - KL falls with e^3, so eightfold where e halves."""
    z = torch.tensor([1.0, -0.5, 0.2, -1.0], dtype=torch.float64)

    def bias(e):
        pi = torch.softmax(REF.log() + e * z, -1)
        return float((pi * value("k2", pi.log())).sum() - reverse(pi))

    assert bias(0.01) != 0 and bias(0.02) / bias(0.01) == pytest.approx(8, rel=0.05)


def loss_gradient(kind, theta):
    """By the objective itself: one row for each token, weighted by its probability."""
    lp = torch.log_softmax(theta, -1)
    rows = [
        Example(
            row=Row(segments=(Segment(ids=(0,)), Segment(ids=(a,), trained=True, logp=(lp[a].item(),)))),
            columns={
                "p": lp[a].exp().item() * np.ones(2),
                "ref_logp": np.array([0.0, float(REF[a].log())]),
                "ref_vocab_logp": np.stack([np.zeros(4), REF.log().numpy()]),
            },
        )
        for a in range(4)
    ]
    batch, zero = pack(rows, dtype=torch.float64), torch.zeros(4, 1, dtype=torch.float64)
    whole = lp.expand(4, 1, 4)
    out = {"logp": torch.cat([zero, lp[:, None]], 1), "vocab_logp": torch.cat([torch.zeros_like(whole), whole], 1)}
    objective = KL(kind, weight="p", reduce="tokens")
    loss, _ = objective({n: out[n] for n in objective.needs}, batch)
    return gradient(4 * loss, theta)


def test_gradients_as_a_loss(theta):
    pi = torch.softmax(theta, -1)
    R, F, S = (gradient(f(pi), theta) for f in (reverse, forward, squares))
    assert loss_gradient("k1", theta) == near([0.0] * 4)
    assert loss_gradient("k2", theta) == near(R) and loss_gradient("full", theta) == near(R)
    assert loss_gradient("k3", theta) == near(F) and loss_gradient("forward", theta) == near(S)
    assert max(abs(np.array(R) - F)) > 0.01 and max(abs(np.array(F) - S)) > 0.01


def reward_gradient(kind, theta):
    """By GAE's own advantages of every token, each with its probability: minus the score-function gradient."""
    lp = torch.log_softmax(theta, -1)
    episodes = tuple(
        Episode(
            rows=(Row(segments=(Segment(ids=(0,)), Segment(ids=(a,), trained=True, logp=(lp[a].item(),)))),),
            reward=Reward(total=0.0),
            status="finished",
        )
        for a in range(4)
    )
    signals = [
        {
            "policy_value": np.zeros(2),
            "ref_logp": np.array([0.0, float(REF[a].log())]),
            "ref_vocab_logp": np.stack([np.zeros(4), REF.log().numpy()]),
            "policy_vocab_logp": np.stack([np.zeros(4), lp.detach().numpy()]),
        }
        for a in range(4)
    ]
    credit = Chain((Gae(gamma=1.0, lam=1.0, kl=1.0, kind=kind),))
    found, _ = credit([Group(task=task("t", (0,), ()), episodes=episodes)], [[[s] for s in signals]], {})
    A = torch.tensor([x.columns["advantage"][1] for x in found], dtype=torch.float64)
    return gradient(-(lp.exp().detach() * A * lp).sum(), theta)


def test_gradients_in_the_reward(theta):
    pi = torch.softmax(theta, -1)
    R, F, S = (np.array(gradient(f(pi), theta)) for f in (reverse, forward, squares))
    mean_k2 = np.array(gradient((pi * value("k2", pi.log())).sum(), theta))
    assert reward_gradient(None, theta) == near(R.tolist()) and reward_gradient("k1", theta) == near(R.tolist())
    assert reward_gradient("k2", theta) == near((mean_k2 - R).tolist())
    assert reward_gradient("k3", theta) == near((R - F).tolist())
    assert reward_gradient("forward", theta) == near((F - S).tolist())
    assert reward_gradient("full", theta) == near([0.0] * 4)


# ---- two states


def test_over_a_sequence_full_needs_both_places():
    """grad KL of two tokens = k1 in the reward = full in the reward + full as a loss; a loss per token alone misses a part."""
    theta = torch.tensor([[0.2, -0.4, 0.9], [1.0, 0.0, -1.0], [-0.3, 0.5, 0.1], [0.4, 0.4, -2.0]], dtype=torch.float64)
    theta.requires_grad_()  # row 0: the first token; row 1 + a: the second one after a
    ref = torch.softmax(torch.tensor([[0.0, 0.1, 0.2], [0, 0, 0], [1, 0, 0], [0, 2, 0]], dtype=torch.float64), -1)
    lp = torch.log_softmax(theta, -1)
    full = (lp.exp() * (lp - ref.log())).sum(-1)
    whole, k1, in_reward, as_loss = (torch.zeros((), dtype=torch.float64) for _ in range(4))
    for a in range(3):
        for b in range(3):
            p = (lp[0, a] + lp[1 + a, b]).exp()
            d = torch.stack([lp[0, a] - ref[0, a].log(), lp[1 + a, b] - ref[1 + a, b].log()])
            later = d.detach().flip(0).cumsum(0).flip(0)
            k1 = k1 + p.detach() * (later[0] * lp[0, a] + later[1] * lp[1 + a, b])
            in_reward = in_reward + p.detach() * full[1 + a].detach() * lp[0, a]  # the own token's part is a constant
            as_loss = as_loss + p.detach() * (full[0] + full[1 + a])
            whole = whole + p * d.sum()
    assert gradient(k1, theta) == near(gradient(whole, theta))
    assert gradient(in_reward + as_loss, theta) == near(gradient(whole, theta))
    assert max(abs(np.array(gradient(as_loss, theta)) - gradient(whole, theta))) > 0.01


# ---- in the machine


def fake_groups(ctx, needs):
    asked = task("t", (0,), ())
    episodes = [ctx.sample(asked, ("kl", n), length=1 + n) for n in range(4)]
    groups = [
        Group(task=asked, episodes=tuple(replace(e, reward=Reward(total=float(i % 2))) for i, e in enumerate(episodes)))
    ]
    return groups, ctx.measure(groups, needs)


@pytest.mark.parametrize("more", [0.0, 1.0])
def test_a_full_kl_does_not_depend_on_how_a_batch_is_split(more):
    """Also where the batch is coupled, and its outputs are gathered first."""
    ctx = FakeContext()
    with torch.no_grad():
        ctx.models["ref"].U += 0.3 * torch.arange(6.0)
    learner = grpo.build(kl=0.1, kind="full").learners["policy"]
    objective = learner.objective + more * TargetEntropy(0.1) if more else learner.objective
    groups, signals = fake_groups(ctx, learner.needs)
    batch, found = pack(learner.credit(groups, signals, {})[0], dtype=torch.float64), []
    for budget in (1, 9, 1000):
        ctx.model("policy").zero_grad()
        metrics = backward(ctx.forward("policy", objective.needs), objective, batch, budget)
        found.append(torch.cat([p.grad.flatten() for p in ctx.model("policy").parameters()]))
    assert float(metrics["kl_ref"]) > 0.01
    assert all(torch.allclose(found[0], other, rtol=1e-9, atol=1e-14) for other in found[1:])


def test_the_sequence_penalty_sums_any_estimator():
    ctx = FakeContext()
    with torch.no_grad():
        ctx.models["ref"].U += 0.3 * torch.arange(6.0)
    for kind in KINDS:
        groups, signals = fake_groups(ctx, (*kl_needs(kind), *kl_needs("k1")))
        found, _ = Chain((LessKL(0.5, kind=kind),))(groups, signals, {})
        for e, x in enumerate(found):
            s, view = signals[0][e][0], groups[0].episodes[e].rows[0].view()
            on = view.trained_T
            d = view.logp_T[on] - s["ref_logp"][on]
            terms = {"k1": d, "k2": d**2 / 2, "k3": np.exp(-d) - 1 + d, "forward": np.exp(-d) * (-d - 1) + 1}
            if kind == "full":
                p, r = s["policy_vocab_logp"][on], s["ref_vocab_logp"][on]
                terms["full"] = (np.exp(p) * (p - r)).sum(-1)
            assert x.columns["advantage"][on] == pytest.approx(x.columns["reward"] - 0.5 * terms[kind].sum())


RECIPES = {
    **{f"{kind} as a loss": grpo.build(kl=0.1, kind=kind) for kind in KINDS},
    **{f"{kind} in the reward": ppo.build(kl=0.1, kind=kind) for kind in KINDS},
    "oreo": oreo.build(kl="full"),
}


@pytest.mark.parametrize("name", RECIPES)
def test_every_kind_trains(name, context):
    ctx, state = context("chain"), start(0)
    recipe = make_smallest(RECIPES[name])
    prepare(recipe, ctx)
    for _ in range(2):
        state, metrics = asyncio.run(step(recipe, ctx, state))
    assert np.isfinite([v for k, v in metrics.items() if k.endswith("loss")]).all()
    if name == "full as a loss":
        assert 0 <= metrics["kl_ref"] < 1


def test_the_default_in_the_reward_is_k1():
    assert (
        ppo.build(kl=0.1, kind="k1") == ppo.build(kl=0.1)
        and ppo.build(kl=0.1).learners["policy"].credit.links[0].kind is None
    )
