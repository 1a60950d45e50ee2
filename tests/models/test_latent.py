"""A head over codes: its gradients, what codes steer, and log-probs of its samples."""

import asyncio

import numpy as np
import pytest
import torch
from palaestra.models.inside.latent import LatentHead, straight_through
from palaestra.rollout.collect import Sample as Play
from palaestra.rollout.collect import links
from palaestra.types import Group


def test_straight_through_reference_values():
    """(.2, .5, .3): one-hot (0, 1, 0) forward, the gradient of the softmax backward."""
    p = torch.tensor([[0.2, 0.5, 0.3]], dtype=torch.float64)
    w = torch.tensor([[1.0, 2.0, 4.0]], dtype=torch.float64)
    slopes = []
    for f in (straight_through, lambda x: x.softmax(-1)):
        logits = p.log().requires_grad_()
        slopes.append(torch.autograd.grad((f(logits) * w).sum(), logits)[0])
    assert straight_through(p.log()).tolist() == [pytest.approx([0, 1, 0])]
    assert torch.allclose(*slopes) and slopes[0].abs().sum() > 0


@pytest.fixture
def latent():
    """A head over 3 codes whose world and policy are random, and a vocabulary of 5."""
    head = LatentHead(3, 4, 5, torch.float64)
    generator = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for p in (head.shift.weight, head.policy.weight):
            p.copy_(torch.randn(p.shape, generator=generator, dtype=torch.float64))
    words = torch.randn(5, 4, generator=generator, dtype=torch.float64)
    return head, lambda h: h @ words.T, torch.randn(6, 4, generator=generator, dtype=torch.float64)


def test_tokens_by_way_of_codes_have_the_gradient_of_the_codes(latent):
    """sum_x p(x) = 1; grad log p(x) = sum_a p(a | x) grad log pi(a); only the policy over codes gets one."""
    head, words, hidden = latent
    logp = head.logits(hidden, words).double()
    assert logp.exp().sum(-1).tolist() == pytest.approx([1.0] * 6)
    token = torch.tensor([0, 1, 2, 3, 4, 0])
    grads = torch.autograd.grad(logp.gather(1, token[:, None]).sum(), [*head.parameters()], allow_unused=True)
    named = dict(zip([n for n, _ in head.named_parameters()], grads, strict=True))
    moved = {n for n, g in named.items() if g is not None}
    assert moved == {"think.weight", "think.bias", "policy.weight", "policy.bias"}
    with torch.no_grad():
        world = torch.stack([words(head.merge(hidden, c.expand(6, -1))).log_softmax(-1) for c in head.code], 1)
        joint = head.choose(hidden) + world[torch.arange(6), :, token]
    posterior = (joint - joint.logsumexp(-1, keepdim=True)).exp()
    again = torch.autograd.grad((posterior * head.choose(hidden)).sum(), head.policy.weight)[0]
    assert torch.allclose(again, named["policy.weight"], atol=1e-6)


def test_codes_that_steer_and_codes_in_use(latent):
    """By the definitions, code by code; alike codes steer nothing, a uniform policy uses all of them."""
    head, words, hidden = latent
    p = torch.stack([words(head.merge(hidden, c.expand(6, -1))).softmax(-1) for c in head.code])
    apart = [0.5 * (each - p.mean(0)).abs().sum(-1) for each in p]
    assert head.steering(hidden, words).tolist() == pytest.approx((sum(apart) / 3).tolist(), abs=1e-6)
    mean = head.choose(hidden).exp().mean(0)
    assert head.usage(hidden).mean().item() == pytest.approx(-(mean * mean.log()).sum().item())
    with torch.no_grad():
        head.shift.weight.zero_()
        head.shift.bias.zero_()
        head.policy.weight.zero_()
        head.policy.bias.zero_()
    assert head.steering(hidden, words).tolist() == pytest.approx([0.0] * 6, abs=1e-6)
    assert head.usage(hidden).tolist() == pytest.approx([float(np.log(3))] * 6)


def test_construction_leaves_no_gradient_to_the_label(latent):
    """The world trains the inverse model; the cloned policy does not."""
    head, words, hidden = latent
    hidden.requires_grad_()
    cost = head.construct(hidden, torch.tensor([0, 1, 2, 3, 4, 0]), words)
    grads = dict(
        zip([n for n, _ in head.named_parameters()], torch.autograd.grad(cost.sum(), [*head.parameters()]), strict=True)
    )
    assert all(g.abs().sum() > 0 for g in grads.values())
    with torch.no_grad():
        head.shift.weight.zero_()  # a world that does not look at codes
    cost = head.construct(hidden, torch.tensor([0, 1, 2, 3, 4, 0]), words)
    inverse, trunk = torch.autograd.grad(cost.sum(), [head.seen, hidden], allow_unused=True)
    assert not inverse.any() and trunk is None


def test_a_latent_models_samples_have_its_log_probs(context):
    """Law 11 by way of codes."""
    ctx = context()
    head = ctx.model("policy").add_head("latent-8")
    with torch.no_grad():
        head.shift.weight.normal_(std=0.05, generator=torch.Generator().manual_seed(0))
        head.policy.weight.normal_(std=0.5, generator=torch.Generator().manual_seed(1))
    group = asyncio.run(links(Play(n=4))(ctx, (0,), Group(task=ctx.bench.tasks.task("train", 0))))
    signals = ctx.measure([group], (("policy", "logp"),))[0]
    for e, rows in zip(group.episodes, signals, strict=True):
        view = e.rows[0].view()
        assert rows[0]["policy_logp"][view.trained_T] == pytest.approx(view.logp_T[view.trained_T], abs=1e-5)
