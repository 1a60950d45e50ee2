"""Lite PPO: the deviation of the raw batch, every token once, and its edges."""

import pytest
import torch
from palaestra.credit.links import Center, Scale, chain
from palaestra.objective.algebra import reduce_terms
from palaestra.recipes.base import grpo
from palaestra.recipes.objectives import lite_ppo
from palaestra.types import Example, Row, Segment
from palaestra.update import pack
from palaestra.values import vary

from tests.recipes.objectives.helpers import advantages, group, weights

EASY_HARD = (group([1, 0, 0, 0]), group([1, 1, 1, 0]))


def test_lite_ppo_divides_by_the_std_of_the_raw_batch():
    found = advantages(lite_ppo.build(), *EASY_HARD)
    assert found[0] == pytest.approx([1.403122] + [-0.467707] * 3, abs=1e-5)
    assert found[1] == pytest.approx([0.467707] * 3 + [-1.403122], abs=1e-5)
    population = advantages(lite_ppo.build(ddof=0), *EASY_HARD)
    assert population[0] == pytest.approx([1.5] + [-0.5] * 3, abs=1e-5)
    assert population[1] == pytest.approx([0.5] * 3 + [-1.5], abs=1e-5)
    centred = advantages(lite_ppo.build(ddof=0, centred=True), *EASY_HARD)
    assert centred[0][0] == pytest.approx(0.75 / 0.433013, abs=1e-5)
    own = advantages(vary(grpo.build(), credit=chain(Center("group"), Scale("group", ddof=0))), *EASY_HARD)
    assert own[0] == pytest.approx([1.732051] + [-0.577350] * 3, abs=1e-5)


def test_lite_ppo_counts_every_token_once():
    """Lengths 2 and 6 with per-token losses 1 and 0: 2/8, where the mean over sequences would be 1/2."""
    rows = [Row(segments=(Segment(ids=(0,)), Segment(ids=(1,) * n, trained=True))) for n in (2, 6)]
    batch = pack([Example(row=r, columns={"advantage": 0.0}) for r in rows], dtype=torch.float64)
    loss_BT = torch.tensor([[1.0], [0.0]], dtype=torch.float64) * batch.mask
    assert reduce_terms(loss_BT, batch, "tokens") == 0.25 and reduce_terms(loss_BT, batch, "sequences") == 0.5
    assert lite_ppo.build().learners["policy"].objective.reduce == "tokens"
    found = weights(lite_ppo.build(), group([1, 0], [2, 6]))
    assert found[0][0] == pytest.approx(-found[1][0])  # equal advantages weigh the same token by token


def test_lite_ppo_edges():
    """A nearly solved group is not blown up by its own tiny std; equal rewards give 0."""
    found = advantages(lite_ppo.build(), group([1, 1, 1, 0.999]), group([0, 0, 1, 1]))
    assert max(map(abs, found[0])) < 0.01
    own = advantages(grpo.build(), group([1, 1, 1, 0.999]))
    assert max(map(abs, own)) > 1
    assert advantages(lite_ppo.build(), group([1, 1]), group([1, 1])) == [[0, 0], [0, 0]]
    assert advantages(lite_ppo.build(), group([1]), group([0, 1]))[0] == pytest.approx([0.0])
