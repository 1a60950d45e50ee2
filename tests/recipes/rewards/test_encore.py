"""ENCORE: weights of rules by their entropy, guards, and what a constant rule changes."""

import asyncio
import math
from types import SimpleNamespace

import numpy as np
import pytest
from palaestra.claims.rewards import encore as encore_claim
from palaestra.errors import UserError
from palaestra.recipes.rewards import encore
from palaestra.types import Task

TWO = ((50, 50), (90, 10))


def test_encore_weights_of_the_catalogue():
    assert encore.entropies(TWO) == pytest.approx([0.693147, 0.325083], abs=1e-6)
    w = encore.entropy_weights(TWO)
    assert w == pytest.approx([0.454121, 0.545879], abs=1e-6) and w @ [0.2, 0.8] == pytest.approx(0.527527, abs=1e-6)
    assert encore.entropy_weights(TWO, tau=1e9) @ [0.2, 0.8] == pytest.approx(0.5, abs=1e-9)
    assert encore.entropy_weights(TWO, tau=0.01) @ [0.2, 0.8] == pytest.approx(0.8, abs=1e-9)
    assert encore.entropies(TWO, 2) == pytest.approx([1, 0.468996], abs=1e-6)
    two = encore.entropy_weights(TWO, base=2)
    assert two == pytest.approx([0.434012, 0.565988], abs=1e-6) and two @ [0.2, 0.8] == pytest.approx(
        0.539593, abs=1e-6
    )
    assert two == pytest.approx(encore.entropy_weights(TWO, tau=2 * math.log(2)))


def test_encore_guards():
    constant = (*TWO, (0, 100))
    assert encore.entropy_weights(constant) == pytest.approx([*encore.entropy_weights(TWO), 0])
    bare = encore.entropy_weights(constant, guard=False)
    assert bare.argmax() == 2 and bare.sum() == pytest.approx(1)
    with pytest.raises(UserError, match="every rule got the same rating"):
        encore.entropy_weights(((7, 0), (0, 3)))
    with pytest.raises(UserError, match="counted as"):
        encore.entropy_weights(((0, 0), (1, 1)))
    uneven = ((1, 1), (1, 1, 1, 1))  # both as even as can be
    assert encore.entropy_weights(uneven, normalise=True) == pytest.approx([0.5, 0.5])
    assert encore.entropy_weights(uneven)[0] > 0.5


def test_encore_recipe_weighs_the_heads():
    reward = encore.embedded(tau=1.0).parts["rl"].runnable.collect.links[1].reward
    weights = reward.weights(None)
    assert weights == pytest.approx(encore.entropy_weights(encore.COUNTS, 1.0)) and sum(weights) == pytest.approx(1)


def test_encore_accuracy_by_hand():
    pairs = np.array([[[4, 0], [0, 4]], [[4, 4], [4, 4]]])
    assert (
        encore_claim.agreement(pairs, np.array([1.0, 0.0])) == 0.75
        and encore_claim.agreement(pairs, np.array([0.0, 1.0])) == 0.25
    )
    assert (encore_claim.fit_weights(pairs) * [1, -1] > 0).all()


def test_encore_constants_cancel_in_a_comparison():
    """Whatever weight a constant rule gets, the order of two responses stays; a guard matters for the scale only."""
    found = {}
    for guard in (True, False):
        program = encore_claim.Rules("encore", pairs=300, constant=True, guard=guard)
        found[guard] = asyncio.run(program.run(SimpleNamespace(seed=0))).metrics
    assert found[True] == found[False] and found[True]["correlation"] < -0.7


def test_encore_counts_the_ratings_of_the_data():
    rows = [{"a": 0.5, "b": 1.0}, {"a": 1.0, "b": 1.0}, {"a": 0.5}, {"a": 0.0, "b": 0.5}]
    metas = [{"reply": "x", "ratings": ratings} for ratings in rows]
    tasks = SimpleNamespace(size=len(metas), task=lambda split, i: Task(id=str(i), meta=metas[i]))
    assert encore.count_ratings(tasks, ("a", "b")) == ((2, 1, 1), (2, 1))
    w_R = encore.EntropyWeighted(("a", "b"), tau=1.0).weights(tasks)
    assert w_R == pytest.approx(encore.entropy_weights(((2, 1, 1), (2, 1)), 1.0)) and w_R[1] > w_R[0]
    with pytest.raises(UserError, match="no record has a rating by the rule 'c'"):
        encore.count_ratings(tasks, ("a", "c"))
