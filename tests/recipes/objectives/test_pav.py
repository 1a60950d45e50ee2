"""PAV: progress under the prover, and the credit of each step."""

from dataclasses import replace

import numpy as np
import pytest
from palaestra.credit.steps import best_of, progress
from palaestra.errors import UserError
from palaestra.explanation.method import explain
from palaestra.recipes.objectives import pav

from tests.recipes.objectives.helpers import groups_of


def test_pav_reference_values():
    """Q .1 -> .2: best of 4 goes .3439 -> .5904, A = .2465; at .9 -> .95 nothing is left to gain."""
    assert best_of(np.array([0.1, 0.2, 0.9]), 4) == pytest.approx([0.3439, 0.5904, 0.9999])
    assert progress([0.1, 0.2], k=1) == pytest.approx([0.1])
    assert progress([0.1, 0.2], k=4) == pytest.approx([0.2465])
    assert progress([0.9, 0.95], k=4) == pytest.approx([9.4e-5], abs=1e-6)
    for alpha, effective in ((0.5, 0.32325), (3, 0.9395), (5, 1.4325)):
        assert 0.2 + alpha * progress([0.1, 0.2], k=4)[0] == pytest.approx(effective)
    assert 0.2 + 3 * progress([0.4, 0.55])[0] == pytest.approx(0.65)
    assert progress([0.99, 0.99])[0] == 0 and progress([0.0, 0.0], k=4)[0] == 0


def test_pav_credits_each_step_with_its_own_progress():
    group = [
        {"reward": 1, "turn_rewards": [0, 1], "turn_lengths": [1, 2], "prefix_values": [0.1, 0.2, 1.0]},
        {"reward": 0, "turn_rewards": [0, 0], "turn_lengths": [1, 1], "prefix_values": [0.1, 0.1, 0.0]},
    ]
    found = explain(pav.build(alpha=3.0), [group])
    last = 1 - 0.5904
    assert found["advantages"][0][0] == pytest.approx([0.5 + 3 * 0.2465, 0.5 + 3 * last, 0.5 + 3 * last])
    assert found["advantages"][0][1] == pytest.approx([-0.5, -0.5 - 3 * 0.3439])
    assert found["token_weights"][0][1] == pytest.approx([-0.125, (-0.5 - 3 * 0.3439) / 4])
    with pytest.raises(UserError, match="prefix_values"):
        explain(pav.build(), [[{"reward": 1}]])
    with pytest.raises(UserError, match="3 prefix_values, not 2"):
        explain(pav.build(), [[{"turn_rewards": [0, 1], "turn_lengths": [1, 1], "prefix_values": [0.1, 0.2]}]])


@pytest.mark.parametrize(("alpha", "expected"), [(3.0, 3 * 0.2465), (0.0, 0.0)])
def test_the_progress_that_is_added_is_logged(alpha, expected):
    (group,) = groups_of([1.0])
    facts = {"prefix_values": (0.1, 0.2, 0.2), "step_ends": ((0, 1), (0, 2))}
    group = replace(group, episodes=(replace(group.episodes[0], facts=facts),))
    (made,), _ = pav.build(alpha=alpha).learners["policy"].credit([group], [[[{}]]], {})
    assert made.columns["track:progress"].tolist() == pytest.approx([0, expected, 0])


def test_a_threshold_of_success_reaches_the_values():
    assert [pav.build(right=r).collect.links[-1].right for r in (0.7, None)] == [0.7, None]


def test_a_prover_of_the_users_goes_on_instead_of_the_policy():
    assert pav.build(prover="DIR").references == {"prover": "DIR"} and pav.build().references == {}
    assert pav.build(prover="DIR", kl=0.1).references == {"prover": "DIR", "ref": "policy"}
    assert [r.collect.links[-1].model for r in (pav.build(prover="DIR"), pav.build())] == ["prover", "policy"]
