"""NSR: signs, the denominator of the subset, and what moves when a token is wrong."""

import math

import pytest
import torch
from palaestra.recipes.objectives import nsr

from tests.objective.helpers import token_batch
from tests.recipes.helpers import played
from tests.recipes.objectives.helpers import advantages, group, weights


def test_nsr_signs_and_subsets():
    outcomes = group([1, 0, 0, 1])
    assert advantages(nsr.build(), outcomes) == [0, -1, -1, 0]
    assert advantages(nsr.build(positive=1, negative=0), outcomes) == [1, 0, 0, 1]
    assert advantages(nsr.build(positive=0.1), outcomes) == pytest.approx([0.1, -1, -1, 0.1])


def test_nsr_denominator_is_the_subset():
    """Two wrong answers of four tokens each: eight tokens share the loss, not sixteen."""
    found = weights(nsr.build(), group([1, 0, 0, 1]))
    assert found[1] == pytest.approx([-1 / 8] * 4) and found[0] == [0.0] * 4
    both = weights(nsr.build(positive=0.1), group([1, 0, 0, 1]))
    assert both[1] == pytest.approx([-1 / 16] * 4) and both[0] == pytest.approx([0.1 / 16] * 4)


def test_nsr_edges():
    """Nobody right is the full signal; nobody wrong is no batch at all."""
    assert advantages(nsr.build(), group([0, 0])) == [-1, -1]
    assert weights(nsr.build(), group([1, 1])) == [[0.0] * 4] * 2
    assert advantages(nsr.build(), group([0])) == [-1]
    assert advantages(nsr.build(right=0.5), group([0.49, 0.5])) == [-1, 0]  # from half on it is right
    assert advantages(nsr.build(), group([0.9, 1.0])) == [-1, 0]  # the reward says what is right: here nobody but 1
    credit = nsr.build().learners["policy"].credit
    assert credit([played(1, 1)], [], {})[0] == []


def test_nsr_moves_probability_along_the_prior():
    """p = (.5, .3, .2), token 0 wrong: drawn with probability p0, it moves the logits by (-.25, .15, .10) in expectation."""
    logits = torch.tensor([0.5, 0.3, 0.2], dtype=torch.float64).log().requires_grad_()
    logp = torch.log_softmax(logits, -1)[0]
    out = {"logp": torch.stack([torch.zeros((), dtype=torch.float64), logp])[None]}
    loss, _ = nsr.build().learners["policy"].objective(out, token_batch([-1.0], behaviour=math.log(0.5)))
    assert (-0.5 * torch.autograd.grad(loss, logits)[0]).tolist() == pytest.approx([-0.25, 0.15, 0.10])
