"""RL on incorrect synthetic data: the pit of a wrong answer, and the pairs that are made of it."""

import numpy as np
import pytest
import torch
from palaestra.credit.steps import best_of, pit, progress
from palaestra.errors import UserError
from palaestra.explanation.method import explain
from palaestra.objective.preference import ImitatePreferred
from palaestra.recipes.objectives import incorrect_synthetic_data as isd

from tests.objective.helpers import column_batch, out_of
from tests.recipes.objectives.helpers import near


def test_pit_reference_values():
    """[.5, .75, .25, .25]: A = [.25, -.5, 0]; the lowest value is first reached at the second step, K or no K."""
    rates = [0.5, 0.75, 0.25, 0.25]
    assert progress(rates) == pytest.approx([0.25, -0.5, 0])
    assert best_of(np.array(rates), 5) == pytest.approx([0.968750, 0.999023, 0.762695, 0.762695], abs=1e-6)
    assert progress(rates, k=5) == pytest.approx([0.030273, -0.236328, 0], abs=1e-6)
    assert pit(rates) == pit(best_of(np.array(rates), 5).tolist()) == 1


def wrong_and_right(h=0.0):
    values = [0.5, 0.75, 0.25, 0.25]
    wrong = {"reward": 0, "turn_rewards": [0, 0, 0], "turn_lengths": [1, 1, 1], "prefix_values": values}
    return [
        {"reward": 1, "length": 1, "ref_logp": [-1.0], "logp": [-1 + (0.5 if h else 0)]},
        wrong | {"ref_logp": [-1.0] * 3, "logp": [-1 - 0.15 * bool(h), -1 - 0.15 * bool(h), -1 + 7.0 * bool(h)]},
    ]


def test_per_step_negatives_end_at_the_pit():
    """Log-ratios +.5 and -.3 (steps 1 and 2; the third does not count), beta .1: slope beta sigmoid(-.08)."""
    found = explain(isd.build(), [wrong_and_right(h=1)])["token_weights"][0]
    slope = 0.1 / (1 + np.exp(0.08))
    assert found[0] == pytest.approx([slope]) and found[1] == pytest.approx([-slope, -slope, 0])
    whole = explain(isd.build(form="whole"), [wrong_and_right()])["token_weights"][0]
    assert whole[1] == pytest.approx([-0.05] * 3)


def test_no_pair_without_a_right_or_a_wrong_answer():
    for only in (0, 1):
        found = explain(isd.build(), [[wrong_and_right()[only]]])
        assert not any(any(w) for w in found["token_weights"][0])
    with pytest.raises(UserError, match="prefix_values"):
        explain(isd.build(), [[{"reward": r, "ref_logp": [-1.0] * 4} for r in (1, 0)]])


def test_imitation_of_preferred_answers():
    """Pairs (-1, -3 | rejected) and (-2 | rejected): the mean of 2 and 2; a token weighs 1 / (its answer's tokens * pairs)."""
    batch = column_batch(2, 1, 1, 2, sign=[1.0, -1.0, 1.0, -1.0], units=["a", "a", "b", "b"])
    out = out_of(batch, logp=[[-1.0, -3.0], [-7.0], [-2.0], [-8.0, -9.0]])
    loss, _ = ImitatePreferred()(out, batch)
    assert loss.item() == near(2.0)
    slope = torch.autograd.grad(loss, out["logp"])[0][:, 1:].tolist()
    assert slope == [near([-0.25, -0.25]), near([0, 0]), near([-0.5, 0]), near([0, 0])]
