"""STEER: the change of entropy, the weights made of it, and what is not finite."""

import math

import numpy as np
import pytest
import torch
from palaestra.explanation.method import explain
from palaestra.objective.tokens import DualClipped, TokenWeighted
from palaestra.recipes.objectives import steer

from tests.objective.helpers import batch_of, out_of


def binary_entropy(x):
    return -(x * math.log(x) + (1 - x) * math.log(1 - x))


def test_steer_reference_values():
    """Binary vocabulary, A = 1, x = x_old = .5, .9, .1: Omega, and both weights."""
    x = [0.5, 0.9, 0.1]
    logp, H = torch.tensor(np.log(x)), torch.tensor([binary_entropy(p) for p in x])
    omega = steer.entropy_change(logp, logp, H, torch.ones(3))
    assert omega.tolist() == pytest.approx([0, 0.021972, -1.779752], abs=1e-5)
    batch = batch_of([1.0] * 3, behaviour_logp=[logp.tolist()])
    out = out_of(batch, logp=[logp.tolist()], entropy=[H.tolist()])
    for mapping, expected in (("linear", [1.2, 1.195062, 0.8]), ("exp", [1, 0.997249, 0.8])):
        w, _ = steer.EntropyChange(mapping)(out, batch)
        assert w[0, 1:].tolist() == pytest.approx(expected, abs=1e-5)
        assert w[0, 0] == 0


def test_steer_has_the_sign_of_the_entropy_change():
    """dH / dz_a = -x (log x + H) for the token's own logit; Omega has this sign, and its size up to (1 - x) / x."""
    z = torch.tensor([0.3, -1.0, 0.8, 0.1], dtype=torch.float64, requires_grad=True)
    for token in range(4):
        logp = torch.log_softmax(z, 0)
        H = -(logp.exp() * logp).sum()
        slope, x = torch.autograd.grad(H, z)[0][token], logp[token].exp().item()
        omega = steer.entropy_change(logp[token], logp[token], H, torch.tensor(1.0)).item()
        assert slope.item() * (1 - x) / x == pytest.approx(-omega, rel=1e-9)


def test_steer_weights_multiply_the_clipped_loss():
    """Everything equal: the middle of linear (1.0). Equal rewards: nothing moves. Weights pass no gradient."""
    group = [{"reward": r, "length": 2, "entropy": [0.5, 0.5]} for r in (1, 0)]
    found = explain(steer.build(), [group])["token_weights"][0]
    assert found[0] == pytest.approx([0.70710578 / 4] * 2, abs=1e-6)
    equal = [{"reward": 1, "length": 2, "entropy": [0.5, 0.5]}] * 2
    assert explain(steer.build("exp"), [equal])["token_weights"][0] == [[0.0, 0.0]] * 2
    batch = batch_of([1.0, 1.0])
    out = out_of(batch, logp=[[-1.0, -1.0]], entropy=[[0.2, 2.0]])
    loss, _ = TokenWeighted(DualClipped(), steer.EntropyChange())(out, batch)
    loss.backward()
    assert out["entropy"].grad is None
    assert out["logp"].grad[0, 1:].tolist() == pytest.approx([-0.6, -0.4])  # m .5, 0.6: the extremes 1.2 and .8, halved


def test_steer_ignores_what_is_not_finite():
    batch = batch_of([1.0, 1.0])
    out = out_of(batch, logp=[[-1.0, -1.0]], entropy=[[math.inf, 1.0]])
    w, _ = steer.EntropyChange()(out, batch)
    assert torch.isfinite(w).all()
