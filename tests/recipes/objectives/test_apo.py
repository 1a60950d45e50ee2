"""APO: the share of the KL term, the shaped advantages, their signs and edges."""

import math

import numpy as np
import pytest
from palaestra.explanation.method import explain
from palaestra.objective.policy import Clipped
from palaestra.objective.terms import KL
from palaestra.recipes.objectives import apo
from palaestra.values import vary

from tests.recipes.objectives.helpers import advantages, group, weights


def kl_weights(recipe, rows):
    """d loss / d logp of the KL term alone, relative to its unweighted value."""
    learner = recipe.learners["policy"]
    silent = vary(recipe, objective=learner.objective.parts[1])
    plain = vary(recipe, objective=1e-3 * KL("k3"))
    return [a[0] / b[0] for a, b in zip(weights(silent, rows), weights(plain, rows), strict=True)]


def test_apo_difficulty_share():
    found = apo.kl_share(np.array([0.25, 0.5, 0.75, 0.0, 1.0]))
    assert found == pytest.approx([0.869804, 0.743119, 0.493165, 1, 1], abs=1e-6)


def test_apo_shapes_advantages_and_kl():
    rows = group([1, 0, 0, 0], [100, 150, 80, 5000], ref_logp=[-1.5] * 4)
    assert advantages(apo.build(), rows) == pytest.approx([1.5, -0.50025, -0.5, -0.523909], abs=1e-6)
    assert kl_weights(apo.build(), rows) == pytest.approx([0.493165, 1, 1, 1], abs=1e-6)
    assert advantages(apo.build(stcr=False), rows) == pytest.approx([1.5, -0.5, -0.5, -0.5], abs=1e-6)
    released = kl_weights(vary(apo.build(), objective=Clipped() + 1e-3 * KL("k3")), rows)
    assert released == pytest.approx([1] * 4)


def test_apo_signs():
    """A formatted wrong answer (reward .5) may have A > 0: DADS counts it as positive, STCR as wrong."""
    rows = group([1.5, 0.5, 0, 0, 0, 0], [10, 30, 5, 5, 5, 5], ref_logp=[-1.5] * 6)
    share = float(apo.kl_share(np.array([5 / 6]))[0])
    assert kl_weights(apo.build(), rows)[:2] == pytest.approx([share, share])
    plain, shaped = (advantages(apo.build(stcr=s, base=1.01), rows) for s in (False, True))
    assert shaped[1] == pytest.approx(plain[1] * (2 - 1.01**-20)) and shaped[2:] == pytest.approx(plain[2:])


def test_apo_edges():
    """Nobody right: no length rule. Equal rewards: A = 0 and the full KL acts."""
    assert advantages(apo.build(), group([0.5, 0, 0], [9, 99, 999], ref_logp=[-1] * 3))[1:] == pytest.approx(
        [-0.57735] * 2, abs=1e-5
    )
    same = group([1, 1], ref_logp=[-1.5, -1.5])
    assert kl_weights(apo.build(), same) == pytest.approx([1, 1])
    assert weights(apo.build(), same)[0] == pytest.approx([-1e-3 * (1 - math.exp(-0.5)) / 8] * 4)
    bare = explain(apo.build(), [group([1, 0])])  # the reference is the loss's
    assert bare["advantages"][0] == pytest.approx([0.707107, -0.707107]) and bare["token_weights"] is None
    assert "'ref_logp'" in bare["notes"][0]


def test_apo_reference_values_need_no_reference_model():
    """The catalogue's: A = [1.5, -.5, -.5, -.5], s = [1, 1.0005, 1, 1.047819]."""
    rewards = [{"reward": r, "length": n} for r, n in zip([1, 0, 0, 0], [100, 150, 80, 5000], strict=True)]
    found = explain(apo.build(), [rewards])
    assert found["advantages"][0] == pytest.approx([1.5, -0.50025, -0.5, -0.523909], abs=1e-6)
    assert found["token_weights"] is None
    assert found["notes"] == [
        "no token_weights: the loss reads 'ref_logp'; add it to every trajectory (--group FILE.json)"
    ]
