"""The top tokens of a batch, and the dual clip."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from palaestra.objective.tokens import DualClipped, TokenWeighted, TopTokens, mark_top_share
from palaestra.update import backward

from tests.objective.helpers import batch_of, column_batch, out_of


def test_top_entropy_mask():
    """k = ceil(rho N): 1 of 5, 2 of 6, 2 of 10."""
    H = torch.tensor([[0.1, 2.0, 0.3, 1.5, 0.05]])
    assert mark_top_share(H, torch.ones(1, 5) > 0, 0.2).tolist() == [[0, 1, 0, 0, 0]]
    assert (np.quantile(H, 0.8) <= H).tolist() == [[False, True, False, False, False]]
    for n, k in ((6, 2), (10, 2), (1, 1)):
        assert mark_top_share(torch.zeros(1, n), torch.ones(1, n) > 0, 0.2).sum() == k  # ties: exactly k
    assert mark_top_share(torch.zeros(1, 3), torch.zeros(1, 3) > 0, 0.2).sum() == 0


@settings(max_examples=20)
@given(st.lists(st.integers(1, 6), min_size=2, max_size=5), st.sampled_from(["entropy", "low-entropy", "random"]))
def test_token_weights_do_not_depend_on_the_split(lengths, by):
    """Law 2: ranks are of the optimiser batch, whatever is in a micro-batch."""
    rng, found = np.random.default_rng(len(lengths)), []
    batch = batch_of(*[rng.standard_normal(n) for n in lengths])
    theta = torch.tensor(rng.standard_normal(batch.mask.shape))

    def forward(part):  # the token's number in the row and the row's first id find its parameters
        rows, T = part["ids"][:, 1], part["ids"].shape[1]
        logp = leaf[rows, :T] * part.mask
        return {"logp": logp, "entropy": (logp * 3).sin() * part.mask}

    objective = TokenWeighted(DualClipped(), TopTokens(0.3, by, over="selected"))
    for budget in (1, 1000):
        leaf = theta.clone().requires_grad_()
        metrics = backward(forward, objective, batch, budget)
        found.append((leaf.grad, metrics["tokens_selected"]))
    torch.testing.assert_close(found[0][0], found[1][0])
    assert float(found[0][1]) == pytest.approx(math.ceil(0.3 * sum(lengths) - 1e-9) / sum(lengths))


def test_dual_clip():
    """A = -1 and rho = e^3 = 20.1: the gain is bounded by c A = -10 and passes no gradient; A = 1 is clipped at 1.28."""
    batch = batch_of([-1.0, -1.0, 1.0])
    out = out_of(batch, logp=[[2.0, 0.0, 0.0]])
    loss, _ = DualClipped()(out, batch)
    assert loss.item() == pytest.approx((10 + math.e - 1.28) / 3)
    loss.backward()
    assert out["logp"].grad[0].tolist() == pytest.approx([0, 0, math.e / 3, 0])


def test_top_tokens_of_a_micro_batch():
    """Entropies [.9, .8] and [.2, .1], share .5: the batch keeps the first row, micro-batches of one row a token of each."""
    batch = column_batch(2, 2, entropy=[[0.9, 0.8], [0.2, 0.1]])
    out = {"entropy": batch["entropy"]}
    assert TopTokens(0.5)(out, batch)[0][:, 1:].tolist() == [[1, 1], [0, 0]]
    micro = TopTokens(0.5, over="selected", micro=True)
    assert micro.couples == "row" and TopTokens(0.5).couples == "batch"
    for row, kept in ((0, [2.0, 0.0]), (1, [2.0, 0.0])):  # N / k of the row
        part = batch.part(torch.tensor([row]))
        assert micro({"entropy": part["entropy"]}, part)[0][0, 1:].tolist() == kept
