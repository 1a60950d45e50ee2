"""Surrogates of tokens of unknown authors: values by hand, gradient weights, and an unknown log-prob that is not read."""

import math

import numpy as np
import pytest
import torch
from palaestra.errors import UserError
from palaestra.objective.shaped import Shaped
from palaestra.objective.tokens import TokenWeighted, Unmastered
from palaestra.update import backward

from tests.objective.helpers import batch_of, out_of, token_batch, token_gradient

RATIOS = [0.1, 0.2, 0.4, 0.8, 1.0]  # of the catalogue's entry of Guide-GRPO


@pytest.mark.parametrize(
    ("p", "value", "weight"), [(0.3, 0.75, 0.1875), (0.05, 1 / 3, 2 / 9), (0.02, 1 / 6, 0.02 * 0.1 / 0.12**2)]
)
def test_saturating(p, value, weight):
    """ICPO and AMPO: 0.3 gives 0.75, 0.02 a sixth; Critique-GRPO: 0.05 gives a third and the gradient weight 2 / 9."""
    loss, grads, metrics = token_gradient(Shaped(), token_batch([0.8]), logp=[math.log(p)])
    assert loss == pytest.approx(-0.8 * value) and weight == pytest.approx(0.1 * p / (p + 0.1) ** 2)
    assert grads["logp"] == pytest.approx([-0.8 * weight])
    assert (float(metrics["shaped"]), float(metrics["probability"])) == pytest.approx((value, p))


def test_quantile():
    """gamma is 0.92, the 0.9-quantile of all ratios, and no gradient flows through it."""
    batch = token_batch([1.0] * 5, behaviour=-1.0)
    shaped = Shaped("quantile", old="behaviour")
    _, grads, _ = token_gradient(shaped, batch, logp=[math.log(r) - 1 for r in RATIOS])
    values = shaped.shape(torch.tensor([RATIOS]), torch.ones(1, 5), torch.ones(1, 5) > 0)
    assert values[0].tolist() == pytest.approx([0.098039, 0.178571, 0.303030, 0.465116, 0.520833], abs=1e-6)
    found = [-5 * g for g in grads["logp"]]
    assert found == pytest.approx([0.088428, 0.146684, 0.211203, 0.248783, 0.249566], abs=1e-6)
    assert shaped.couples == "batch" and Shaped().couples == "row"


def test_quantile_is_of_the_whole_batch_however_it_is_split():
    batch = batch_of(*([1.0] for _ in RATIOS))
    found = []
    for budget in (1, 1000):
        leaf = torch.tensor([[0.0, math.log(r) - 1] for r in RATIOS], dtype=torch.float64, requires_grad=True)
        rows = lambda part, leaf=leaf: {"logp": leaf[part["ids"][:, 1]] * part.mask}
        backward(rows, Shaped("quantile", old="behaviour"), batch, budget)
        found.append(leaf.grad)
    torch.testing.assert_close(found[0], found[1])


def test_mixture():
    """RL-PLUS: pi = pi_old = 0.2 gives pi_w = 0.6, r = 0.5, C = 0.894427 and the loss -0.357771 for A = 0.8."""
    logp = math.log(0.2)
    batch = token_batch([0.8], behaviour=float("nan"), policy_logp=[np.array([0.0, logp])])
    mixture = Shaped("mixture", old="policy")
    loss, grads, _ = token_gradient(mixture, batch, logp=[logp])
    assert loss == pytest.approx(-0.8 * 0.5) and grads["logp"] == pytest.approx([-0.8 * 0.5])
    weighted = TokenWeighted(mixture, Unmastered(0.5))
    loss, grads, metrics = token_gradient(weighted, batch, logp=[logp])
    assert loss == pytest.approx(-0.357771, abs=1e-6) and grads["logp"] == pytest.approx([loss])  # C is detached
    assert float(metrics["unmastered"]) == pytest.approx(0.894427, abs=1e-6)
    sure = token_batch([0.8], policy_logp=[np.zeros(2)])
    loss, grads, metrics = token_gradient(weighted, sure, logp=[0.0])
    assert (loss, grads["logp"], float(metrics["shaped"])) == (0, [0], 1)  # mastered: r = 1 and no gradient
    other = Shaped("mixture", old="policy", density=0.01)
    assert token_gradient(other, batch, logp=[logp])[0] == pytest.approx(-0.8 * 2 * 0.2 / (0.2 + 0.105))


def test_power():
    """Plain importance sampling at 1, of probability 1 where the author is unknown; Guide's rho^g."""
    batch = token_batch([2.0], behaviour=math.log(0.5))
    found = [Shaped("power", old="behaviour"), Shaped("power"), Shaped("power", old="behaviour", power=0.5)]
    losses = [token_gradient(f, batch, logp=[math.log(0.25)])[0] for f in found]
    assert losses == pytest.approx([-2 * 0.5, -2 * 0.25, -2 * 0.5**0.5])


def test_an_unknown_log_prob_is_read_by_behaviour_alone():
    batch = batch_of([1.0, 1.0])
    batch.columns["behaviour_logp"][:] = float("nan")
    out = out_of(batch, logp=[[-0.5, -0.7]])
    for form in ("saturating", "power"):
        loss, _ = Shaped(form)(out, batch)
        assert torch.isfinite(loss) and torch.isfinite(torch.autograd.grad(loss, out["logp"])[0]).all()
        assert torch.isnan(Shaped(form, old="behaviour")(out, batch)[0])


def test_wrong_shapes_are_refused():
    for bad in ({"form": "mixture"}, {"constant": 0.0}, {"quantile": 2.0}, {"density": -1.0}):
        with pytest.raises(UserError, match=r"policy|at least|above"):
            Shaped(**bad)
    with pytest.raises(UserError, match="unknown form"):
        token_gradient(Shaped("cubic"), token_batch([1.0]), logp=[-1.0])
