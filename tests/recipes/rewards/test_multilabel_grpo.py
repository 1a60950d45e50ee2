"""GRPO with several labels: aggregation, gates, and labels normalised one by one."""

import math

import pytest
from palaestra.credit.links import Chain
from palaestra.errors import Fault, UserError
from palaestra.explanation.method import explain
from palaestra.recipes.rewards import multilabel_grpo
from palaestra.rewards.labels import QUALITY_LABELS
from palaestra.settings.overrides import make_smallest

from tests.recipes.rewards.helpers import steps
from tests.rewards.labelled import group, reward_of, said


def scored_by(ctx, reward, text, s):
    """What MultiLabel makes of the sigmoids `s`, through the heads of a model whose biases say just that."""
    ctx.models["reward"] = ctx.model("policy")
    for name, x in zip(QUALITY_LABELS, s, strict=True):
        ctx.model("reward").add_head(name)
        ctx.model("reward").heads[name].out.bias.data.fill_(math.log(x / (1 - x)) if x < 1 else 40.0)
    return reward_of(reward, ctx, text)[0]


def test_multilabel_aggregates_and_gates(context):
    ctx, s = context(), [0.9, 0.6, 0.3, 1.0]
    assert scored_by(ctx, multilabel_grpo.MultiLabel(), "= 4", s).total == pytest.approx(0.7, abs=1e-6)
    with pytest.raises(UserError, match="gate 'safe' is none of the labels right"):
        multilabel_grpo.MultiLabel(gate="safe")
    gated = multilabel_grpo.MultiLabel(gate="tidy", floor=0.5)
    assert scored_by(ctx, gated, "= 4", s).total == pytest.approx(0.7, abs=1e-6)
    assert scored_by(ctx, gated, "= 4", [0.9, 0.6, 0.3, 0.4]).total == 0
    weighed = multilabel_grpo.MultiLabel(weights=(1.0, 0.0, 0.0, 0.0))
    assert scored_by(ctx, weighed, "= 4", s).total == pytest.approx(0.9, abs=1e-6)
    empty = scored_by(ctx, multilabel_grpo.MultiLabel(), " ", s)
    assert empty.total == pytest.approx(1.3 / 4, abs=1e-6) and empty.parts["reward/right"] == 0
    other = multilabel_grpo.MultiLabel(content=("meaningful", "right"))  # of which one is no label here
    assert scored_by(ctx, other, " ", s).total == pytest.approx(1.9 / 4, abs=1e-6)
    ctx.model("reward").heads["brief"].out.bias.data.fill_(float("nan"))
    assert isinstance(reward_of(multilabel_grpo.MultiLabel(), ctx, "= 4")[0], Fault)


def test_multilabel_normalises_the_sum():
    rows = [{"reward": r} for r in (0.7, 0.5, 0.9, 0.5)]
    found = explain(multilabel_grpo.improve(), [rows])["advantages"][0]
    assert found == pytest.approx([0.301511, -0.904534, 1.507557, -0.904534], abs=1e-4)
    assert explain(multilabel_grpo.improve(), [rows[:1]])["advantages"][0] == [0.0]
    with pytest.raises(UserError, match="reward/polite, which after_norm"):
        explain(multilabel_grpo.improve(aggregate="after_norm"), [rows])


def test_multilabel_after_norm_is_not_ruled_by_the_widest_label():
    """Label a spreads ten times as far as b: the sum follows a, the normalised labels weigh the same and cancel."""
    made = [said(t, a + b, **{"reward/a": a, "reward/b": b}) for t, a, b in (("x", 1.0, 0.0), ("y", 0.0, 0.1))]
    signals = [[[{}], [{}]]]
    before, _ = multilabel_grpo.credit("before_norm")([group(*made)], signals, {})
    after, _ = Chain((multilabel_grpo.EachLabel(("a", "b")),))([group(*made)], signals, {})
    assert [e.columns["advantage"][-1] for e in before] == pytest.approx([1, -1], abs=1e-4)
    assert [e.columns["advantage"][-1] for e in after] == pytest.approx([0, 0], abs=1e-4)
    same = [said(t, 0.5, **{"reward/a": 0.5, "reward/b": 0.0}) for t in "xy"]
    flat, _ = Chain((multilabel_grpo.EachLabel(("a", "b")),))([group(*same)], signals, {})
    assert [e.columns["advantage"][-1] for e in flat] == [0, 0]


def test_multilabel_trains_on_every_label(context):
    ctx = context()
    rating = multilabel_grpo.embedded().parts["reward"].runnable
    found = steps(make_smallest(rating), ctx, 2)
    assert {f"part/label/{k}" for k in QUALITY_LABELS} | {"squared_error"} <= {
        k.removeprefix("reward/") for k in found[-1]
    }
    assert all(ctx.model("reward").heads[k].out.bias.abs() > 0 for k in QUALITY_LABELS)
