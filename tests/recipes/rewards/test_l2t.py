"""Learning to Think: gains of steps less their cost, shared out by token."""

import math

import numpy as np
import pytest
import torch
from palaestra.explanation.method import explain
from palaestra.models.score import output_gradients
from palaestra.recipes.rewards import l2t

from tests.recipes.rewards.helpers import attempts, run


def test_l2t_rewards_of_the_catalogue():
    g = np.array([1.0, 2.0])
    assert l2t.penalty(np.array([0.1, -0.2]), g) == pytest.approx(0.09)
    events = [0.8 * (gain - 0.6 * c) for gain, c in ((0.3, 0.05), (0.1, 0.2))]
    assert [x / 0.8 for x in events] == pytest.approx([0.27, -0.02])
    r = l2t.token_shares(np.array([-1.0, -3.0, -1.0]), [1, 2], events, 1.0)
    assert r == pytest.approx([0.179, 0.537, 0.484])  # R = 0.716 and 0.484
    assert l2t.token_shares(np.zeros(2), [1], [0.2], 0.0) == pytest.approx([0.1, 0.1])  # no surprise: equal weights
    assert l2t.token_shares(np.array([-1.0, -3.0]), [], [], 1.0) == pytest.approx([0.25, 0.75])  # no step: K = 1
    assert l2t.truncated_mean(np.array([1.0] * 38 + [100.0, -50.0])) == 1 and l2t.truncated_mean(np.zeros(0)) == 0


def test_l2t_shares_the_advantage_out_by_token():
    steps = {
        "turn_lengths": [2, 1],
        "turn_rewards": [0.216, -0.016],
        "reward": 1.2,
        "behaviour_logp": [-1.0, -3.0, -1.0],
    }
    other = {"reward": 0.0, "length": 3}
    found = explain(l2t.build(), [[steps, other]])["advantages"][0]
    share = np.array([0.179, 0.537, 0.484]) / 0.4  # r_i = 1.2 / 3
    assert found[0] == pytest.approx(share / math.sqrt(2), abs=1e-5)  # two rollouts: A = +-1 / sqrt(2)
    assert found[1] == pytest.approx([-1 / math.sqrt(2)] * 3, abs=1e-5)  # r_i = 0: the same for every token
    assert np.mean(share) == pytest.approx(1)
    short = [{"reward": 1.0, "length": 2}, {"reward": 1.0, "length": 4}]
    brief, long = explain(l2t.build(), [short])["advantages"][0]
    assert brief == pytest.approx([0.707107] * 2, abs=1e-5) and long == pytest.approx([-0.707107] * 4, abs=1e-5)
    assert explain(l2t.build(), [[{"reward": 1.0}]])["advantages"] == [[[0.0] * 4]]


def test_l2t_clamps_what_explodes():
    near = {"turn_lengths": [1, 1], "turn_rewards": [1.0, -0.999], "reward": 0.001}
    found = explain(l2t.build(), [[near, {"reward": 1.0, "length": 2}]])["advantages"][0][0]
    assert np.abs(found).max() == pytest.approx(10 * 0.707107, abs=1e-4) and np.sign(found[0]) == -np.sign(found[1])


def test_l2t_steps_cost_their_virtual_update(context):
    """C = eta^2 |g|^4 against the gradient of the model's own output layer, and the step's place and sum."""
    ctx = context()
    first = ctx.bench.tasks.task("train", 0)
    steps = ctx.bench.tasks.steps(first)
    group = attempts(ctx, "\n".join([*steps, f"= {first.answer}"]), "= 9")
    with_cost = run(l2t.InformationStepRewards(rank=16)(ctx, group))
    free = run(l2t.InformationStepRewards(beta=0.0)(ctx, group))
    for paid, gain in zip(with_cost, free, strict=True):
        assert paid.total == pytest.approx(gain.total - paid.parts["compression"])
        assert paid.total == pytest.approx(paid.parts["outcome"] + sum(e.value for e in paid.events))
        assert [e.token for e in paid.events] == [e.token for e in gain.events]
        assert all(p.value <= g.value for p, g in zip(paid.events, gain.events, strict=True))
    assert len(free[0].events) == len(steps) + 1


def test_output_gradients_sketch_the_true_ones(context):
    """Norms of sketches are those of d log p / d (output layer) / sqrt(D), within what a projection of this rank loses."""
    model = context().model("policy")
    pairs = [((256, 60, 61), (62, 63, 64)), ((256, 70), (71, 72, 73, 74))]
    rank, found = 128, []
    for (c, t), x in zip(pairs, output_gradients(model, pairs, rank), strict=True):
        assert x.shape == (len(t), 2 * rank)
        hidden = model.hidden(torch.tensor([[*c, *t]]))[0, len(c) - 1 : len(c) + len(t) - 1].detach()
        error = (
            torch.nn.functional.one_hot(torch.tensor(t), model.vocabulary) - model.logits(hidden).softmax(-1).detach()
        )
        true = float((error.T @ hidden).norm() ** 2 / model.width)
        sketch = float(np.sum((x[:, :rank].T @ x[:, rank:]) ** 2))
        found.append(sketch / true)
        assert l2t.compression(x, 0.25) == pytest.approx(0.25**2 * sketch**2)
    assert found == pytest.approx([1, 1], abs=0.35)


def test_l2t_cuts_at_lines_or_at_a_mark():
    text = "Hm.\n<think>one\ntwo<think>three"
    assert l2t.CutAt()(text) == ["Hm.\n", "<think>one\n", "two<think>three"]
    assert l2t.CutAt("<think>")(text) == ["Hm.\n", "<think>one\ntwo", "<think>three"]
    assert l2t.CutAt("<think>")("") == []
