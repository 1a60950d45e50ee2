"""RAPO: the forward KL, the tempered reference, and its exponents."""

import asyncio
import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from palaestra.explanation.method import explain
from palaestra.objective.kl import kl_terms
from palaestra.recipes.objectives import rapo
from palaestra.types import Episode

from tests.recipes.objectives.helpers import groups_of


def test_rapo_estimator():
    q = torch.tensor([2.0, 0.5, 1.0])
    assert kl_terms(-q.log(), torch.zeros(3), "forward").tolist() == pytest.approx([0.386294, 0.153426, 0], abs=1e-6)
    pi, ref = torch.tensor([0.2, 0.3, 0.5]), torch.tensor([0.7, 0.2, 0.1])
    assert float((pi * kl_terms(pi.log(), ref.log(), "forward")).sum()) == pytest.approx(
        float((ref * (ref / pi).log()).sum())
    )


def test_rapo_tempered_reference():
    from palaestra.models.forward import Predicted, power_logp

    logp = torch.tensor([[0.7, 0.2, 0.1]]).log().repeat(3, 1)
    for phi, expected in ((0.5, [0.522879, 0.279491, 0.197630]), (0.0, [1 / 3] * 3), (1.0, [0.7, 0.2, 0.1])):
        tokens = torch.arange(3)
        found = power_logp(logp, Predicted(tokens, torch.full((3,), phi), tokens[:, None])).exp()
        assert found.tolist() == pytest.approx(expected, abs=1e-6)


def test_rapo_exponents():
    assert rapo.exponents(np.array([0.0, 1, 1, 0]), "sample").tolist() == [0, 1, 1, 0]
    assert rapo.exponents(np.array([0.0, 1, 1, 0]), "group").tolist() == [0.5] * 4
    assert rapo.exponents(np.array([-1.0, 3, 1]), "sample").tolist() == [0, 1, 0.5]
    assert rapo.exponents(np.array([1.0, 1]), "sample").tolist() == [1, 1]  # nothing to compare
    assert rapo.exponents(np.array([0.0]), "sample").tolist() == [0]
    assert rapo.exponents(np.array([0.0, 1]), "none").tolist() == [1, 1]


def test_rapo_skips_failed_episodes():
    (group,) = groups_of([0.0, 1.0])
    broken = replace(group, episodes=(group.episodes[0], Episode(status="error:endpoint"), group.episodes[1]))
    found = asyncio.run(rapo.Temper()(None, (), broken)).episodes
    assert [e.facts.get("exponent") for e in found] == [0.0, None, 1.0]


def test_rapo_token_weights():
    """Equal rewards leave the forward KL alone: d k / d logp = -q log q with q = pihat / pi, alpha / (G |o|)."""
    group = [
        {"reward": 1, "logp": [-1.0], "entropy": [0.0], "ref_power_logp": [-1.0 + math.log(2)]},
        {"reward": 1, "logp": [-1.0], "entropy": [0.0], "ref_power_logp": [-1.0]},
    ]
    found = explain(rapo.build(alpha=0.1), [group])["token_weights"][0]
    assert found[0] == pytest.approx([0.1 * 2 * math.log(2) / 2]) and found[1] == pytest.approx([0])
    bare = explain(rapo.build(), [[{"reward": 1}, {"reward": 0}]])
    assert bare["token_weights"] is None and "'ref_power_logp'" in bare["notes"][0]
