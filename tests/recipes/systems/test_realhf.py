"""Graphs, rules and rehearsals of ReaLHF's row."""

import asyncio
import math

import palaestra as pl
import pytest
from palaestra.claims.systems.realhf import EXPERIMENT
from palaestra.errors import UserError
from palaestra.planning.rehearsal import rehearse
from palaestra.recipes.systems.realhf import FEW, Graph, PlanSearch, Rehearsal, agreement, choices_of, options_of


def test_a_graph_of_a_seed_is_the_same_for_every_rule():
    one, other = (Graph.draw(pl.rng_of(("graph", 0)), "ppo", 2) for _ in "ab")
    assert one.calls == other.calls
    plans = {rule: one.plan(rule, 100) for rule in ("symmetric", "megatron", "colocated", "searched")}
    assert plans["colocated"].fits
    whole = frozenset(range(16))
    for rule in ("symmetric", "megatron", "colocated"):
        options = plans[rule].choice.values()
        assert {o.mesh for o in options} == {whole}
        assert rule == "colocated" or len({o.layout for o in options}) == 1
    assert {o.layout.tensor for o in plans["megatron"].choice.values()} == {8}


def test_a_search_on_all_devices_leaves_none_out():
    graph = Graph.draw(pl.rng_of(("graph", 1)), "grpo", 2)
    found = graph.plan("searched on all devices", 50)
    assert {len(o.mesh) for o in found.choice.values()} == {16}


def test_small_graphs_have_plans_that_are_counted():
    graph = Graph.draw(pl.rng_of(("graph", 2)), "grpo", 2).cut(pl.rng_of(("cut", 2)))
    assert [len(c.options) for c in graph.calls] == [FEW] * 3
    best = graph.best().score
    for rule in ("symmetric", "megatron", "colocated", "searched", "random plans"):
        assert graph.plan(rule, 20).score >= best


def test_a_rehearsal_takes_as_long_as_its_calls_allow():
    """Two devices: generation on both, then two calls beside each other, of which the longer decides."""
    call = lambda name, mesh, *after: pl.planning.ModelCall(
        name=name, model=name, kind="inference", after=after,
        options=(pl.planning.CallOption(mesh=frozenset(mesh), layout=pl.planning.Parallelism(), seconds=0.1),),
    )  # fmt: skip
    calls = [call("a", {0, 1}), call("b", {0}, "a"), call("c", {1}, "a")]
    choice = {c.name: c.options[0] for c in calls}
    took = rehearse(calls, choice, {"a": [0.05], "b": [0.02], "c": [0.1]}, 1)
    assert 0.15 <= took < 1.0
    with pytest.raises(UserError, match="waits for 'a'"):
        rehearse(calls[1:], choice, {}, 1)


def test_plans_for_two_devices():
    measured = [{"generate": [2.0, 1.0, 3.0], "inference": [1.0], "train": [4.0]},
                {"generate": [1.5], "inference": [0.9], "train": [2.0]}]  # fmt: skip
    from dataclasses import replace

    calls = [replace(c, options=options_of(c, measured)) for c in pl.planning.DATAFLOWS["ppo"]]
    assert [o.seconds for o in calls[0].options] == [2.0, 2.0, 1.5]
    spans = {k: pl.planning.plan_of(calls, c, iterations=1).makespan for k, c in choices_of(calls, 1).items()}
    assert spans["all on both"] == pytest.approx(1.5 + 3 * 0.9 + 2 * 2.0)
    # reward and reference after one another, values between
    assert spans["actor apart"] == pytest.approx(2.0 + 3.0 + 4.0) and spans["searched"] <= min(spans.values())


def test_agreement_counts_ties():
    rows = [{"predicted": p, "rehearsed": r} for p, r in ((1, 2), (1, 2), (3, 3))]
    assert agreement(rows) == {"rank_correlation": pytest.approx(1.0), "largest_error": 0.5}


def test_arms_and_rehearsal_run(context):
    small = {"nodes": (2,), "tries": 20, "small": 1, "tries_small": 5}
    arms = {"searched": PlanSearch("searched", rehearsal=Rehearsal(repeats=1, iterations=1), **small),
            "colocated": PlanSearch("colocated", **small)}  # fmt: skip
    for name, arm in arms.items():
        cell = pl.ledger.Cell(summary=asyncio.run(arm.run(context())).metrics)
        assert name != "colocated" or EXPERIMENT.measure(cell) == 1.0
        found = {n: control(cell) for n, control in EXPERIMENT.controls.items()}
        assert math.isnan(found["largest error of a prediction"]) == (name == "colocated")
    with pytest.raises(UserError, match="as many repeats"):
        asyncio.run(Rehearsal(repeats=1).run(context()))
