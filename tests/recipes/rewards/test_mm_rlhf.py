"""MM-RLHF: the scale of a pair, its loss and gradient, and the reward model's critique."""

import asyncio
import math

import numpy as np
import pytest
import torch
from palaestra.errors import Fault
from palaestra.recipes.rewards import mm_rlhf
from palaestra.settings.overrides import make_smallest
from palaestra.types import Episode, Example, Reward, Row, Segment
from palaestra.update import pack
from palaestra.values import override

from tests.recipes.rewards.helpers import steps
from tests.rewards.labelled import group, said


def test_mm_rlhf_beta_of_the_margin():
    found = mm_rlhf.beta(torch.tensor([2.0, 0.0, 1e9, -1.0]))
    assert found.tolist() == pytest.approx([0.131606, 0.1, 0.15, 0.1], abs=1e-6)
    assert mm_rlhf.beta(torch.tensor([5.0]), base=1e-9).tolist() == pytest.approx([1e-3])


def pair_batch(margin, logp=(-1.0, -1.0)):
    rows = []
    for sign, ids in ((1.0, (0, 1)), (-1.0, (0, 2))):
        row = Row(segments=(Segment(ids=ids[:1]), Segment(ids=ids[1:], trained=True)))
        rows.append(
            Example(row=row, columns={"sign": sign, "margin": margin, "ref_logp": np.array([0.0, -1.0])}, unit="a")
        )
    batch = pack(rows, dtype=torch.float64)
    out = torch.tensor([[0.0, x] for x in logp], dtype=torch.float64).requires_grad_()
    return batch, {"logp": out}


def test_mm_rlhf_loss():
    batch, out = pair_batch(2.0, (-0.5, -1.5))  # a log-ratio difference of 1
    plain = lambda **k: float(mm_rlhf.DynamicDPO(sft=0.0, **k)(out, batch)[0].detach())
    assert plain() == pytest.approx(0.629508, abs=1e-6) and plain(w=0.0) == pytest.approx(0.644397, abs=1e-6)
    loss, metrics = mm_rlhf.DynamicDPO()(out, batch)
    assert float(loss.detach()) == pytest.approx(0.629508 + 0.25 * 0.5, abs=1e-6) and float(
        metrics["beta"]
    ) == pytest.approx(0.131606, abs=1e-6)
    negative, given = pair_batch(-1.0)
    assert float(mm_rlhf.DynamicDPO()(given, negative)[1]["d_negative"]) == 1
    s_w, s_l = 1.2, -0.4
    assert math.log1p(math.exp(s_l - s_w)) == pytest.approx(0.183901, abs=1e-6) and 0.01 * (
        s_w + s_l
    ) ** 2 == pytest.approx(0.0064)


@pytest.mark.parametrize("source", ["reward_model", "implicit"])
def test_mm_rlhf_gradient_is_that_of_a_constant_beta(source):
    batch, out = pair_batch(2.0, (-0.5, -1.5))
    loss, metrics = mm_rlhf.DynamicDPO(sft=0.0, source=source)(out, batch)
    (grad,) = torch.autograd.grad(loss, [out["logp"]])
    b = float(metrics["beta"])
    assert grad[:, 1].tolist() == pytest.approx([-b / (1 + math.exp(b)), b / (1 + math.exp(b))])
    assert grad[:, 0].tolist() == [0, 0]


def test_mm_rlhf_released_beta():
    m = torch.tensor([0.0, 0.1, -0.1, 0.05, 30.0], dtype=torch.float64)
    one = mm_rlhf.batch_beta(m)
    assert one == mm_rlhf.batch_beta(m) and float(one) == pytest.approx(
        0.1 * (1 + 0.1 * float(0.0125 - m.mean())), abs=1e-6
    )
    assert float(mm_rlhf.batch_beta(m * 1e3)) == 1e-3  # the floor
    assert float(mm_rlhf.batch_beta(torch.tensor([0.7]))) == pytest.approx(0.1)  # a batch of one


def test_mm_rlhf_pairs():
    made = [said(t, r, gold=y) for t, r, y in (("a", 3.0, 1.0), ("b", 1.0, 0.0), ("c", 2.0, 0.0), ("d", 9.0, 1.0))]
    signals = [[[{}]] * 5]
    raw, _ = mm_rlhf.RankedPairs(standardise=False)([group(*made, Episode(status="error:x"))], signals, {})
    pairs = {
        (a.row.segments[1].text, b.row.segments[1].text): a.columns["margin"]
        for a, b in zip(raw[::2], raw[1::2], strict=True)
    }
    assert pairs == {("a", "b"): 2.0, ("a", "c"): 1.0, ("d", "b"): 8.0, ("d", "c"): 7.0}
    even, _ = mm_rlhf.RankedPairs()([group(*made)], signals, {})
    assert np.std([e.columns["margin"] for e in even[::2]]) == pytest.approx(1)
    assert mm_rlhf.RankedPairs()([group(*made[:1]), group(*made[1:3])], signals * 2, {})[0] == []


def test_mm_rlhf_reward_model_reads_its_own_critique(context):
    ctx = context()
    recipe = override(make_smallest(mm_rlhf.embedded()), "collect.links.0.n", 4)
    found = steps(recipe, ctx, 2)
    e = ctx.seen[0].episodes[0]
    assert [s.author for s in e.rows[1].segments][-1] == "critique" and e.rows[1].segments[-1].text in (
        "right, worked", "right, guessed", "wrong, worked", "wrong, guessed",
    )  # fmt: skip
    assert not e.rows[1].view("policy").trained_T.any() and "reward/critique_nll" in found[-1] | found[0]
    assert ctx.engine("reward").sampled_tokens > 0 and e.reward.parts.keys() >= {"reward/score", "gold"}


def test_mm_rlhf_scores_recorded_pairs_and_keeps_who_was_preferred():
    async def score(ctx, group):
        return [Reward(total=2.0, parts={"reward/score": 2.0}), Fault("reward-model", "nan")]

    pair = group(said("a", 1.0), said("b", 0.0), meta={"chosen_critique": "clear", "rejected_critique": None})
    scored, broken = asyncio.run(mm_rlhf.ScoredPairs(score)(None, (), pair)).episodes
    assert scored.total == 2.0 and scored.reward.parts["gold"] == 1.0 and broken.status == "error:reward-model"
    assert [mm_rlhf.written_critique(pair.task, e) for e in pair.episodes] == ["clear", ""]
