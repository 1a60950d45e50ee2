"""ROVER: the paper's numbers, the successor, and its edges."""

import math

import pytest
import torch
from palaestra.explanation.method import explain
from palaestra.recipes.objectives import rover

from tests.objective.helpers import batch_of, out_of

ROVER = [
    {"reward": 1, "length": 2, "vocab_mean_logp": [-2, -2.020411], "policy_vocab_mean_logp": [-2, -2]},
    *[{"reward": 0, "length": 2, "vocab_mean_logp": [-2, -2], "policy_vocab_mean_logp": [-2, -2]}] * 3,
]


def test_rover_first_update_is_reinforce_with_a_centred_reward():
    """Q = 0: weight of a token = 2 y / N, y = rt + the successor's mean log-ratio, and rt at the last token."""
    found = explain(rover.build(), [ROVER])
    assert found["advantages"][0] == [0.75, -0.25, -0.25, -0.25]
    assert found["token_weights"][0][0] == pytest.approx([2 * (0.75 - 0.020411) / 8, 2 * 0.75 / 8])
    assert found["token_weights"][0][1] == pytest.approx([-2 * 0.25 / 8] * 2)


def test_rover_reference_values():
    """pi_old = (.5, .5), pi(s') = (.6, .4), pi(a|s) = .55, rt = .5: y = .479589, error .147670."""
    old = math.log(0.5)
    mean = (math.log(0.6) + math.log(0.4)) / 2
    assert mean - old == pytest.approx(-0.020411, abs=1e-6)
    batch = batch_of([0.5, 0.5], policy_vocab_mean_logp=[[old, old]], behaviour_logp=[[old, old]])
    out = out_of(batch, logp=[[math.log(0.55), old + 0.5]], vocab_mean_logp=[[old, mean]])
    loss, _ = rover.UniformBellman()(out, batch)
    assert 2 * loss.item() == pytest.approx(0.147670, abs=1e-6)  # Q = y at the last token: no error there
    loss.backward()
    assert out["vocab_mean_logp"].grad is None  # a target
    assert out["logp"].grad[0, 1].item() == pytest.approx(math.log(1.1) - 0.479589, abs=1e-6)
    bare, _ = rover.UniformBellman(bootstrap=False)(out, batch)
    assert 2 * bare.item() == pytest.approx((math.log(1.1) - 0.5) ** 2, abs=1e-9)


def test_rover_successor_skips_what_others_wrote():
    x, mask = torch.tensor([[9.0, 1, 9, 9, 2, 3]]), torch.tensor([[0.0, 1, 0, 0, 1, 1]])
    assert rover.successors(x, mask)[mask > 0].tolist() == [2, 3, 0]


def test_rover_edges():
    lone = {**ROVER[1], "reward": 1}
    assert explain(rover.build(), [[lone]])["token_weights"][0] == [[0.0, 0.0]]
    bare = explain(rover.build(), [[{"reward": 1}, {"reward": 0}]])
    assert bare["advantages"] == [[0.5, -0.5]] and bare["token_weights"] is None
    assert "'vocab_mean_logp'" in bare["notes"][0]
