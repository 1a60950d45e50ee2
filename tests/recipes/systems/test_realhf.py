"""Graphs, rules and rehearsals of ReaLHF's row."""

import asyncio
import json
import math

import palaestra as pl
import pytest
from palaestra.claims.systems.realhf import (
    EXPERIMENT,
    FEW,
    Graph,
    PlanSearch,
    Rehearsal,
    agreement,
    choices_of,
    options_of,
)
from palaestra.errors import UserError
from palaestra.planning.deploy import shared_out
from palaestra.planning.dimensions import decoder_named
from palaestra.planning.estimate import option_of
from palaestra.planning.rehearsal import rehearse
from palaestra.recipes.systems import realhf


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


CLUSTER = {"nodes": 2, "devices": 8, "actor": "7b", "critic": "7b", "reference": "7b", "reward": "7b", "tries": 60}


@pytest.mark.parametrize("changes", [{}, {"algorithm": "grpo", "reward": "none"}, {"reference": "6.7e9,32,4096,8192"}])
def test_a_plan_for_a_cluster_is_a_file_that_runs_take(context, tmp_path, changes):
    """The searched plan is not slower than the symmetric one; the file has processes for no more devices than there
    are, and the plan that it stands for uses them.
    """
    program = realhf.build(**{**CLUSTER, **changes})
    ctx = context(out=tmp_path)
    metrics = asyncio.run(program.run(ctx)).metrics
    assert metrics["plan"]["searched_seconds"] <= metrics["plan"]["symmetric_seconds"] * 1.001
    assert metrics["reallocation"] == {} and metrics["run"] == {}  # no 16 GPUs here
    cluster = pl.Cluster.read(str(tmp_path / "cluster.toml"))
    asked = cluster.asked_for(on_gpus=True)
    assert cluster.workers and sum(gpus for _, _, gpus in asked) <= 16
    rows = json.loads((tmp_path / "plan.json").read_text())
    names = [row["call"] for row in rows]
    assert names[0] == "generate" and ("reward" in names) == ("algorithm" not in changes)


def test_a_plan_says_what_it_cannot_do(context):
    run = lambda **more: asyncio.run(realhf.build(**{**CLUSTER, **more}).run(context()))
    with pytest.raises(UserError, match="fits no mesh"):
        run(nodes=1, devices=1, actor="34b")
    with pytest.raises(UserError, match="no folder of a model"):
        run(actor="8b")
    with pytest.raises(UserError, match="four numbers"):
        run(actor="a,b,c,d")
    with pytest.raises(UserError, match="actor=none"):
        realhf.build(actor="none")


def test_ranks_that_share_weights_gather_them():
    """Seconds of replicas and of three passes of gathers for each minibatch, in a share of the memory."""
    size, device = pl.planning.DECODERS["7b"], pl.planning.Device()
    work = pl.planning.Workload(sequences=64, prompt=512, answer=512)
    plain = option_of("train", size, work, device, frozenset(range(4)), pl.planning.Parallelism(data=4))
    shared = shared_out("train", size, work, device, range(4))
    gathers = 3 * 4 * 2 * 6.7e9 * 3 / 4 / (1800 * 2**30 / 8)
    assert shared.seconds - plain.seconds == pytest.approx(gathers)
    assert shared.static_gb == pytest.approx(plain.static_gb / 4)
    assert shared_out("train", size, work, device, [0]).seconds == pytest.approx(
        option_of("train", size, work, device, frozenset({0}), pl.planning.Parallelism()).seconds
    )


def test_dimensions_of_a_model(context, tmp_path):
    policy = context().model("policy").module
    own = decoder_named("policy", policy)
    config = policy.config
    assert own.layers == config.num_hidden_layers and own.parameters == sum(p.numel() for p in policy.parameters())
    config.save_pretrained(tmp_path)
    assert decoder_named(str(tmp_path), policy) == own == decoder_named(str(tmp_path / "config.json"), policy)
