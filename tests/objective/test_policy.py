"""Target entropy, and ratios by turn."""

import pytest
import torch
from palaestra.objective.policy import Clipped, log_ratio
from palaestra.objective.terms import TargetEntropy
from palaestra.recipes.objectives import confucius3
from palaestra.types import Example, Row, Segment
from palaestra.update import backward, pack

from tests.objective.helpers import column_batch, out_of, token_batch, token_gradient
from tests.recipes.objectives.helpers import near


@pytest.mark.parametrize(("entropy", "loss", "slope"), [(0.3, 0.00025, -1), (0.55, 0.0, 0), (0.8, 0.00025, 1)])
def test_targeted_entropy(entropy, loss, slope):
    found, grad, metrics = token_gradient(0.001 * TargetEntropy(0.55), token_batch([0.0, 0.0]), entropy=[entropy] * 2)
    assert found == pytest.approx(loss)
    assert grad["entropy"] == pytest.approx([0.001 * slope / 2] * 2)
    assert metrics["entropy"] == pytest.approx(entropy)


def test_targeted_entropy_is_of_the_whole_batch():
    """Entropies .2 and .9 lie above .5 together: in micro-batches of one row, too, both are pushed down."""
    assert TargetEntropy().couples == (Clipped() + 0.001 * TargetEntropy()).couples == "batch"
    batch = token_batch([0.0, 0.0], row=[0.0, 1.0])
    for budget in (1, 100):
        H = torch.tensor([0.2, 0.9], dtype=torch.float64, requires_grad=True)

        def forward(part, H=H):
            mine = H[part["row"].long()]
            return {"entropy": torch.stack([torch.zeros_like(mine), mine], 1)}

        backward(forward, TargetEntropy(0.5), batch, budget)
        assert H.grad.tolist() == pytest.approx([0.5, 0.5])


def test_turn_ratios_of_a_short_row_late_in_an_episode():
    """The sixth turn of an episode in a row of three tokens: its number is beyond the row."""
    said = Segment(ids=(1, 2), logp=(0.0, 0.0), policy="policy", trained=True, turn=5)
    row = Row(segments=(Segment(ids=(0,), turn=5), said))
    batch = pack([Example(row=row, columns={})], dtype=torch.float64)
    found = log_ratio({"logp": torch.tensor([[0.0, 0.25, 0.5]])}, batch, "turn")
    assert found.tolist() == [[0.0, 0.75, 0.75]]


def test_squared_target_entropy():
    """H = .8, target .55: (H - target)^2 = .0625, slope 2 * .25 / N for each of two tokens; 0 at the target."""
    batch = column_batch(1, 1)
    out = out_of(batch, entropy=[[0.8], [0.8]])
    loss, _ = TargetEntropy(0.55, squared=True)(out, batch)
    assert loss.item() == near(0.0625)
    assert torch.autograd.grad(loss, out["entropy"])[0][:, 1].tolist() == near([0.25, 0.25])
    assert confucius3.build(phase=1, squared=True).learners["policy"].objective.parts[1].objective.squared
