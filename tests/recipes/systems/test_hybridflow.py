"""Resharding of real ranks against the formula, and placements of groups of models against all plans."""

import palaestra as pl
import pytest
from palaestra.claims.systems.hybridflow import Resharding
from palaestra.errors import UserError
from palaestra.models.load import load
from palaestra.planning import resharding
from palaestra.planning.estimate import DECODERS
from palaestra.planning.plan import CallOption, ModelCall, Parallelism, best_plan, placements, set_partitions
from palaestra.planning.resharding import TensorLayout
from palaestra.recipes.systems import hybridflow
from palaestra.recipes.systems.hybridflow import best_placements
from palaestra.scale.local_ranks import run_ranks


@pytest.mark.parametrize(
    ("way", "share", "twice"), [("grouped", 1 / 4, 0), ("model group", 3 / 4, 1 / 4), ("all ranks", 3 / 4, 1 / 4)]
)
def test_ranks_receive_what_the_formula_says(way, share, twice):
    """t = 4, t_g = 2, one replica."""
    found = Resharding(way, data=1).measure(seed=0)
    assert found["received"] == found["least_received"] == found["formula"] == share
    assert found["kept_twice"] == twice and found["logits"] < 1e-5
    if found["arrived"] == found["arrived"]:  # headers of messages, and words of the ranks' store
        assert share <= found["arrived"] < 1.05 * share


def reshard_spoilt(world, way, layout, seed):
    """As `reshard`, but the shards of rank 1 are not those of the model."""
    real, off = resharding.distribute_tensor, 0.01 * (world.get_rank() == 1)
    resharding.distribute_tensor = lambda weight, *given, **more: real(weight + off, *given, **more)
    return resharding.reshard(world, way, layout, seed)


def test_a_wrong_shard_is_seen_in_the_logits_of_all():
    found = run_ranks(4, reshard_spoilt, "grouped", TensorLayout(data=1), 0)
    assert min(x.logits for x in found) > 1e-2


def test_shares_by_the_formula():
    layout = TensorLayout(train=4, generate=2, data=2)
    assert [layout.traffic(w) for w in ("grouped", "model group", "all ranks")] == [1 / 4, 3 / 4, 7 / 8]
    layout = TensorLayout(train=8, generate=2, data=2)
    assert [layout.traffic(w) for w in ("grouped", "model group", "all ranks")] == [0.375, 0.875, 0.9375]
    with pytest.raises(UserError, match="does not divide"):
        TensorLayout(train=4, generate=3)


def test_four_models_are_put_into_groups_in_fifteen_ways():
    found = [frozenset(map(frozenset, groups)) for groups in set_partitions("abcd")]
    assert len(found) == len(set(found)) == 15


HALVES = [frozenset({0}), frozenset({1})]


def two_models(seconds):
    """`seconds` of a call on one device and on both."""
    options = [CallOption(mesh=m, layout=Parallelism(data=len(m)), seconds=seconds[len(m) - 1])
               for m in (*HALVES, HALVES[0] | HALVES[1])]  # fmt: skip
    return [ModelCall(name=n, model=n, kind="inference", options=tuple(options)) for n in ("a", "b")]


@pytest.mark.parametrize(("seconds", "groups", "makespan"), [((4.0, 3.0), 2, 4.0), ((4.0, 1.5), 1, 3.0)])
def test_groups_are_worth_it_where_devices_do_not_help(seconds, groups, makespan):
    """Side by side 4 s; one after the other 2 x 3 s or 2 x 1.5 s."""
    calls = two_models(seconds)
    best = min(placements(calls, HALVES), key=lambda p: p.plan.score)
    assert (len(best.groups), best.plan.makespan) == (groups, makespan)
    assert best.plan.score == best_plan(calls, iterations=1).score


def test_colocated_is_best_on_few_devices():
    found = best_placements(2, DECODERS["7b"], iterations=1)
    assert found["colocated"] < found["2 groups"] and found["searched"] <= found["colocated"]


def test_the_users_model_is_resharded(context, tmp_path):
    """Its own folder is what the processes read, with bytes of its own; a layout that stays moves nothing."""
    ctx = context()
    folder = tmp_path / "own"
    model = ctx.model("policy")
    model.module.save_pretrained(folder)
    model.tokenizer.save_pretrained(folder)
    ctx.models["policy"] = load(str(folder))
    found = hybridflow.build(train=(2, 1, 1), generate=(1, 1), nodes=(), prompts=0).reshard(ctx)
    for way, share in {"grouped": 1 / 2, "model group": 1 / 2, "all ranks": 1 / 2}.items():
        assert found[way]["received"] == pytest.approx(share, abs=1e-4) and found[way]["formula"] == share
        assert found[way]["different"] == 0 < found[way]["tensors"]


def test_layouts_that_cannot_be_are_refused():
    with pytest.raises(UserError, match="divides the training layout"):
        hybridflow.build(train=(1, 4, 1), generate=(1, 3))
    with pytest.raises(UserError, match="at least 1"):
        hybridflow.build(train=(1, 0, 1))
    with pytest.raises(UserError, match="give workers"):
        hybridflow.build(judges=1)


def test_roles_are_where_they_are_placed():
    """PPO with a reference, in rollout processes and judges where these are asked for, else as the run says."""
    placed, plain = (hybridflow.build(workers=n, judges=n).algorithm() for n in (1, 0))
    assert placed.cluster == pl.Cluster(workers=1, judges=1) and placed.runnable == plain
    assert plain.references == {"ref": "policy"} and plain.learners["policy"].heads == ("value",)
