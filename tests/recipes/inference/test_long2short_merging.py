"""Long to short by merging: the line between two models, what lies above it, and the arms of its claim."""

import asyncio

import pytest
import torch
from palaestra.claims.inference.long2short_merging import EXPERIMENT
from palaestra.models.arithmetic import Average, PermuteUnits, weights_of
from palaestra.models.load import trainable_copy
from palaestra.pipeline import Output
from palaestra.recipes.inference import long2short_merging as l2s
from palaestra.rollout.collect import Sample
from palaestra.run.evaluation import attempt_tasks


def test_a_mixture_lies_on_the_line():
    ends = ({"short": 6.0, "long": 18.0}, {"short": 0.6, "long": 1.0})
    at = lambda length, accuracy: l2s.above_line({**ends[0], "merged": length}, {**ends[1], "merged": accuracy})
    assert at(12.0, 0.8) == pytest.approx(0.0) and at(9.0, 1.0) == pytest.approx(0.3)
    assert at(12.0, 0.5) == pytest.approx(-0.3)
    assert at(30.0, 1.0) == pytest.approx(0.0), "longer than the long one: no credit for it"
    assert at(3.0, 0.6) == pytest.approx(0.0)


def test_the_ways_of_the_released_code():
    assert {n: w for n, w in l2s.WAYS.items() if n in ("ties", "task-arithmetic")} == {
        "ties": l2s.pl.models.Ties(removed=0.8, scale=1.0), "task-arithmetic": l2s.pl.models.TaskArithmetic(0.7),
    }  # fmt: skip
    assert l2s.WAYS["dare"].drop == 0.3


@pytest.fixture
def two(context):
    """A context whose short and long models are the policy, the one with other units."""
    ctx = context("add(d=1)")
    ctx.models["long"] = trainable_copy(ctx.model("policy"))
    ctx.models["short"] = trainable_copy(ctx.model("policy"))
    own = weights_of(ctx.model("policy").module)
    moved = PermuteUnits()(own, [own])
    for name, p in ctx.models["short"].module.named_parameters():
        p.data.copy_(moved[name])
    return ctx


def test_the_exam_leaves_the_policy_as_it_was(two):
    before = {n: t.clone() for n, t in weights_of(two.model("policy").module).items()}
    found = asyncio.run(l2s.MergeExam(tasks=6, shares=(0.0, 0.5, 1.0)).run(two)).metrics
    assert all(torch.equal(t, before[n]) for n, t in weights_of(two.model("policy").module).items())
    assert found["accuracy"]["short"] == found["accuracy"]["long"] == found["accuracy"]["merged"] == 1.0
    assert found["above_line"] == 0 and found["shorter"] == 0 and list(found["line"]) == ["0", "0.5", "1"]
    assert found["barrier"] > 0.05 and found["line"]["0"]["loss"] == pytest.approx(found["line"]["1"]["loss"], abs=1e-4)
    assert found["length_by_domain"] == {"add(d=1)": found["length"]["merged"]}
    greedy = asyncio.run(attempt_tasks(two, 6, Sample(n=1, temperature=0.0)))
    assert l2s.mean_length(greedy) == found["length"]["merged"]


def test_arms_differ_in_the_merge_alone():
    assert not EXPERIMENT.lacks()
    for name, arm in EXPERIMENT.every_arm.items():
        short, long = (arm.parts[n].runnable for n in ("short", "long"))
        assert (short, long) == tuple(l2s.build().parts[n].runnable for n in ("short", "long")), name
        assert arm.parts["exam"].runnable.tasks == 256
    unrelated = EXPERIMENT.arms["unrelated"].parts
    assert unrelated["merged"].models["short"] == Output("elsewhere") == unrelated["exam"].models["short"]
    assert unrelated["merged"].runnable.how == Average()
    assert EXPERIMENT.every_arm["start"].parts["exam"].model is None


def test_a_mixture_answers_with_both(two):
    found = asyncio.run(l2s.MergeExam(tasks=16, shares=(0.0, 1.0), mix=0.5).run(two)).metrics
    assert found["accuracy"]["merged"] == 1.0 and found["above_line"] == 0
