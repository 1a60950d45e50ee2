"""LlamaRL: the weights of AIPO, the placebo of its claim, and its edges."""

import math

import pytest
import torch
from palaestra.claims.systems import llamarl as claim
from palaestra.errors import UserError
from palaestra.objective.policy import Reinforce
from palaestra.objective.tokens import TokenWeighted
from palaestra.recipes.systems import llamarl

from tests.objective.helpers import batch_of, out_of, token_batch, token_gradient
from tests.recipes.objectives.helpers import advantages, near, scored

RATIOS, CREDIT = (1.5, 4.0, 0.5, 4.0), (1.0, 1.0, -1.0, -1.0)
LOGP = [-1.0 + math.log(r) for r in RATIOS]


def weights(recipe, credit=CREDIT, logp=LOGP):
    """Weight times advantage of tokens that were sampled at log-prob -1, a row each; recipe of length 1."""
    objective = recipe.learners["policy"].objective
    _, grad, _ = token_gradient(objective, token_batch(list(credit), -1.0), logp=logp)
    return [-len(credit) * g for g in grad["logp"]]


def test_weights_of_the_catalogue():
    """min(pi / mu, 2) A: above the cap with either sign, small ratios as they are; no clip of PPO ends a gradient."""
    assert weights(llamarl.build(length=1)) == pytest.approx([1.5, 2.0, -0.5, -2.0])
    assert weights(llamarl.build(rho=10.0, length=1)) == pytest.approx([1.5, 4.0, -0.5, -4.0])


def test_the_ratio_has_no_gradient_of_its_own():
    """The loss is -w A log pi: its gradient is that of w held fixed, not of w log pi."""
    objective = Reinforce(reduce="constant", length=1, weighted=True, cap=2.0)
    loss, grad, metrics = token_gradient(objective, token_batch([1.0], -1.0), logp=[-0.8])
    w = math.exp(0.2)
    assert loss == pytest.approx(0.8 * w) and grad["logp"] == pytest.approx([-w])
    assert float(metrics["ratio"]) == pytest.approx(w)


def test_group_baseline_and_its_edges():
    assert advantages(llamarl.build(), *scored(1, 0, 0, 0)) == near([0.75, -0.25, -0.25, -0.25])
    assert advantages(llamarl.build(), *scored(1, 1)) == near([0, 0])
    assert advantages(llamarl.build(), *scored(1)) == near([0])
    assert llamarl.build().schedule.lag == 1 and llamarl.build(lag=0).schedule.lag == 0


def test_a_cap_needs_a_weight():
    with pytest.raises(UserError, match="weighted=True"):
        Reinforce(cap=2.0)
    with pytest.raises(UserError, match="above 0"):
        Reinforce(weighted=True, cap=0.0)


def mixed_weights(batch, logp):
    """[rows][tokens] of the placebo."""
    out = {"logp": out_of(batch, logp=logp)["logp"]}
    w_BT, _ = claim.MixedRatios()(out, batch)
    return [w_BT[b, 1 : 1 + len(row)].tolist() for b, row in enumerate(logp)]


def test_the_placebo_has_the_same_weights_at_other_tokens():
    logp = [[-0.9, -0.5, -1.2], [-2.0, 0.0], [-1.5, -0.7, -0.3, -1.1]]
    batch = batch_of(*[[1.0] * len(row) for row in logp])
    own = [[min(math.exp(x + 1), 2.0) for x in row] for row in logp]
    found = mixed_weights(batch, logp)
    flat = lambda rows: [x for row in rows for x in row]
    assert sorted(flat(found)) == near(sorted(flat(own))) and flat(found) != near(flat(own))
    turned = [2, 0, 1]  # rows in another order: each token keeps the weight that it was given
    again = mixed_weights(batch.part(torch.tensor(turned)), [logp[i] for i in turned])
    assert [again[turned.index(i)] for i in range(3)] == [near(row) for row in found]


def test_arms_differ_in_age_and_weights_alone():
    arms = claim.EXPERIMENT.arms
    assert [a.schedule.lag for a in arms.values()] == [0, 1, 8, 8, 8]
    assert len({a.learners["policy"].optimiser for a in arms.values()}) == 1
    assert len({(a.collect, a.schedule.prompts, a.learners["policy"].credit) for a in arms.values()}) == 1
    *_, plain, weighted, mixed = (a.learners["policy"].objective.parts[0] for a in arms.values())
    assert weighted.weighted and weighted.cap == 2.0 and not plain.weighted
    assert mixed == TokenWeighted(plain, claim.MixedRatios(cap=weighted.cap))


def test_what_an_arm_says_of_its_age():
    """Two of four tokens are more than 2% away from 1, one is above 2; nothing is added to the loss."""
    batch, logp = token_batch([1.0] * 4, -1.0), [-1.0, -1.01, -1.5, 0.0]
    plain, moved = (token_gradient(o, batch, logp=logp) for o in (claim.PLAIN, claim.PLAIN + claim.Moved()))
    assert plain[:2] == moved[:2]
    assert (float(moved[2]["moved"]), float(moved[2]["above"])) == (0.5, 0.25)
