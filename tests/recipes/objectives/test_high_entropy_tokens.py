"""Beyond the 80/20 rule: which tokens are kept, and what the loss is divided by."""

import pytest
import torch
from palaestra.explanation.method import explain
from palaestra.recipes.objectives import high_entropy_tokens
from palaestra.update import backward

from tests.objective.helpers import batch_of, column_batch, out_of
from tests.recipes.objectives.helpers import near


@pytest.mark.parametrize(("variant", "expected"), [("released", 1.0), ("paper", 0.2)])
def test_high_entropy_normaliser(variant, expected):
    """Five tokens with A = 1, one selected: the surrogate is 1 over the selected, 1/5 over all."""
    batch = batch_of([1.0] * 5)
    out = out_of(batch, logp=[[-1.0] * 5], entropy=[[0.1, 2.0, 0.3, 1.5, 0.05]])
    objective = high_entropy_tokens.build(variant=variant).learners["policy"].objective
    loss, metrics = objective(out, batch)
    assert loss.item() == pytest.approx(-expected)
    assert float(metrics["tokens_selected"]) == pytest.approx(0.2)
    loss.backward()
    assert out["logp"].grad[0].nonzero().flatten().tolist() == [2]
    assert out["entropy"].grad is None  # the choice is not learned


def test_high_entropy_through_explain():
    a = {"reward": 1, "entropy": [0.1, 2.0, 0.3, 1.5, 0.05]}
    b = {"reward": 0, "entropy": [0.0] * 5}
    found = explain(high_entropy_tokens.build(), [[a, b]])["token_weights"][0]
    assert found[0] == pytest.approx([0, 0.70710578 / 10, 0, 0.70710578 / 10, 0], abs=1e-6)
    assert found[1] == [0.0] * 5
    low = explain(high_entropy_tokens.build(0.8, "low-entropy"), [[a, b]])["token_weights"][0]
    assert [w != 0 for w in low[0]] == [True, False, True, False, True]
    bare = explain(high_entropy_tokens.build(), [[{"reward": 1}, {"reward": 0}]])
    assert bare["token_weights"] is None and "'entropy'" in bare["notes"][0]


def test_the_micro_batch_is_a_setting_of_that_method():
    objective = high_entropy_tokens.build(0.5, micro=True).learners["policy"].objective
    batch = column_batch(2, 2, entropy=[[0.9, 0.8], [0.2, 0.1]], advantage=[[1.0, 1.0], [1.0, 1.0]])
    found = {}
    for budget in (1, 100):
        lp = torch.zeros(4, dtype=torch.float64, requires_grad=True)

        def forward(part, lp=lp):
            at = torch.tensor([[0, 0, 1], [0, 2, 3]])[(part["entropy"][:, 1] < 0.5).long()]
            return {"logp": lp[at] * part.mask, "entropy": part["entropy"]}

        backward(forward, objective, batch, budget)
        found[budget] = lp.grad.tolist()
    assert found[100] == near([-0.25, -0.25, 0, 0]) and found[1] == near([-0.25, 0, -0.25, 0])
