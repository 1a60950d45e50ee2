"""PPO: generalised advantages, the loss of the value and its target by hand."""

import numpy as np
import pytest
import torch
from palaestra.credit.gae import Gae
from palaestra.credit.links import chain
from palaestra.explanation.method import explain
from palaestra.objective.terms import ValueLoss
from palaestra.recipes.base import ppo
from palaestra.types import Episode, Example, Group, Reward, Row, Segment, Task
from palaestra.update import pack


def test_ppo_gae():
    """One trajectory, reward 1 at the end, values .5 .5: deltas 0, .5; GAE(1, .95) = .475, .5; whitened with one other."""
    found = explain(ppo.build(), [[{"reward": 1, "value": [0.5, 0.5]}, {"reward": 0, "value": [0.5, 0.5]}]])[
        "advantages"
    ]
    raw = [0.475, 0.5, -0.475, -0.5]
    mean, std = sum(raw) / 4, (sum(x * x for x in raw) / 3) ** 0.5
    assert found[0][0] + found[0][1] == pytest.approx([(x - mean) / (std + 1e-6) for x in raw])


@pytest.mark.parametrize(
    ("clip", "errors", "slope"),
    [(0.2, (0.64, 1.0, 0.81), (0.0, 1.0, -0.9)), (0.0, (0.25, 1.0, 0.81), (-0.5, 1.0, -0.9))],
)
def test_ppo_value_loss(clip, errors, slope):
    """V = .5, 2, -1 against returns 1, 1, -.1, before 0, 1.9, 0. Kept within .2 of before they are .2, 2, -.2, whose errors .64,
    1, .01 count where they are the larger ones: .64 does not move with V."""
    said = Segment(ids=(1, 2, 3), trained=True, policy="policy", logp=(0.0,) * 3)
    columns = {"policy_value": np.array([0, 0, 1.9, 0]), "return": np.array([0, 1, 1, -0.1])}
    batch = pack([Example(row=Row(segments=(Segment(ids=(0,)), said)), columns=columns)], dtype=torch.float64)
    value = torch.tensor([[0, 0.5, 2.0, -1.0]], dtype=torch.float64, requires_grad=True)
    loss, metrics = ValueLoss(clip=clip)({"value": value}, batch)
    assert float(loss.detach()) == pytest.approx(sum(errors) / 2 / 3)
    assert float(metrics["value_error"]) == pytest.approx((0.25 + 1 + 0.81) / 3)
    assert torch.autograd.grad(loss, value)[0][0, 1:].tolist() == pytest.approx([s / 3 for s in slope])


@pytest.mark.parametrize("head", ["value", "other"])
def test_ppo_value_target(head):
    """The advantages of `test_ppo_gae` on top of the values .5 of its head: what that is to become."""
    said = Segment(ids=(1, 2), trained=True, policy="policy", logp=(0.0, 0.0))
    episode = Episode(rows=(Row(segments=(Segment(ids=(0,)), said)),), reward=Reward(total=1.0), status="finished")
    values = [[[{"policy_value": np.zeros(3), f"policy_{head}": np.array([0, 0.5, 0.5])}]]]
    (found,), _ = chain(Gae(gamma=1.0, lam=0.95, head=head))(
        [Group(task=Task(id="t"), episodes=(episode,))], values, {}
    )
    assert found.columns["advantage"].tolist() == pytest.approx([0, 0.475, 0.5])
    assert found.columns["return"].tolist() == pytest.approx([0, 0.975, 1.0])
