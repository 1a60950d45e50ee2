"""Resharding of real ranks against the formula, and placements of groups of models against all plans."""

import asyncio
import json
from dataclasses import replace

import numpy as np
import palaestra as pl
import pytest
from palaestra.claims.systems.hybridflow import Resharding
from palaestra.credit.table import Table, Values
from palaestra.errors import UserError
from palaestra.models.load import load
from palaestra.planning import resharding
from palaestra.planning.estimate import DECODERS
from palaestra.planning.plan import CallOption, ModelCall, Parallelism, best_plan, placements, set_partitions
from palaestra.planning.resharding import TensorLayout
from palaestra.recipes.systems import hybridflow
from palaestra.recipes.systems.hybridflow import best_placements
from palaestra.recipes.systems.hybridflow.safe import CRITIC, LongAnswer, SafeAdvantage, WithCost
from palaestra.scale.local_ranks import run_ranks
from palaestra.tasks.oracle import episode_saying
from palaestra.types import Episode, Group, Row, Segment, Task


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
    placed, plain = (hybridflow.build(workers=n, judges=n).trainer() for n in (1, 0))
    assert placed.cluster == pl.Cluster(workers=1, judges=1) and placed.runnable == plain
    assert plain.references == {"ref": "policy"} and plain.learners["policy"].heads == ("value",)


@pytest.mark.parametrize("algorithm", hybridflow.ALGORITHMS)
def test_every_algorithm_runs_under_every_placement(algorithm):
    """The recipe is the same object whatever the placement, so no line of it knows where its roles are."""
    placed, plain = (hybridflow.build(algorithm=algorithm, workers=n).trainer() for n in (1, 0))
    assert placed.cluster == pl.Cluster(workers=1) and placed.runnable == plain
    assert plain.references == {"ref": "policy"}


def priced(*pairs):
    """Episodes of one trained token each with a reward and a cost."""
    row = Row(segments=(Segment(ids=(1,)), Segment(ids=(2,), author="policy", trained=True, logp=(-0.5,))))
    return tuple(
        Episode(rows=(row,), status="finished", reward=pl.Reward(total=r, parts={"cost": c})) for r, c in pairs
    )


def signals(n, values=(0.0, 0.0), ref=-0.5):
    by = {"policy_value": values[0], f"policy_{CRITIC}": values[1], "ref_logp": ref}
    return [[[{k: np.array([0.0, v]) for k, v in by.items()}] for _ in range(n)]]


def test_the_advantage_of_safe_rlhf_by_hand():
    """Costs 1 and 0 with limit 0.1 and eta 0.5: ln lambda = 0.5 * 1 * (0.5 - 0.1) = 0.2, lambda = 1.2214. Critics say
    0.25 and 0.5: A_r = r - 0.25, A_c = c - 0.5, A = (A_r - lambda A_c) / 2.2214."""
    group = Group(task=Task(id="t"), episodes=priced((1.0, 1.0), (0.0, 0.0)))
    table = Table([group], signals(2, (0.25, 0.5)), {})
    link = SafeAdvantage(limit=0.1, eta=0.5)
    made = link(Values(level="episode", x_N=np.array([1.0, 0.0])), table)
    lam = np.exp(0.2)
    assert table.state["ln lambda"] == pytest.approx(0.2)
    assert made.x_N == pytest.approx([(0.75 - lam * 0.5) / (1 + lam), (-0.25 + lam * 0.5) / (1 + lam)])
    assert table.columns["return"].x_N == pytest.approx([1.0, 0.0])
    assert table.columns["cost_return"].x_N == pytest.approx([1.0, 0.0])
    later = Table([group], signals(2), table.state)
    link(Values(level="episode", x_N=np.array([1.0, 0.0])), later)
    assert later.state["ln lambda"] == pytest.approx(0.2 + 0.5 * lam * 0.4)


def test_what_costs_little_lowers_the_multiplier_and_a_kl_is_shared():
    """No cost at a limit of 0.1: lambda falls. KL = -0.5 + 1.5 = 1 nat, beta 0.4: r - 0.2 and c + 0.2."""
    group = Group(task=Task(id="t"), episodes=priced((1.0, 0.0)))
    table = Table([group], signals(1, ref=-1.5), {})
    made = SafeAdvantage(limit=0.1, eta=0.5, kl=0.4)(Values(level="episode", x_N=np.array([1.0])), table)
    lam = np.exp(-0.05)
    assert made.x_N == pytest.approx([(0.8 - lam * 0.2) / (1 + lam)])
    plain = Table([group], signals(1), {})
    alone = SafeAdvantage(start=0.0)(Values(level="episode", x_N=np.array([1.0])), plain)
    assert alone.x_N == pytest.approx([1.0]) and not plain.state


def test_costs_are_parts_and_faults_are_none(context):
    said = [episode_saying(t) for t in ("12", "a long answer that says nothing")]
    group = Group(task=Task(id="t"), episodes=tuple(replace(e, reward=pl.Reward(total=0.5)) for e in said))
    made = asyncio.run(WithCost(LongAnswer(16))(context("chain"), ("k",), group)).episodes
    assert [(e.reward.total, e.reward.parts["cost"]) for e in made] == [(0.5, 0.0), (0.5, 1.0)]

    async def broken(ctx, group):
        raise pl.Fault("cost", "gone")

    lost = asyncio.run(WithCost(broken)(context("chain"), ("k",), group)).episodes
    assert all(e.status == "error:cost" and e.reward is None for e in lost)


@pytest.mark.slow
def test_safe_rlhf_trains_on_a_users_file_and_cost(tmp_path):
    """A cost of the user's own is a part of every reward, and the multiplier is logged."""
    (file := tmp_path / "own.jsonl").write_text(
        "".join(json.dumps({"prompt": f"{i} + 1", "answer": f"{i + 1}"}) + "\n" for i in range(8))
    )
    (own := tmp_path / "own.py").write_text(
        "def words(responses, answers): return [len(r.split()) for r in responses]\n"
    )
    run = pl.train(
        "hybridflow", data=str(file), out=tmp_path / "run", quiet=True, max_tokens=4, evaluate=0, seed=0,
        set={"train": "[1,2,1]", "generate": "[1,1]", "nodes": "[]", "prompts": 2, "algorithm": "safe-rlhf",
             "cost": f"{own}:words", "limit": 0.5},
    )  # fmt: skip
    lines = [json.loads(x) for f in run.folder.rglob("metrics.jsonl") for x in f.read_text().splitlines()]
    steps = [x for x in lines if "part/cost" in x]
    assert len(steps) == 10 and all("lambda" in x and "cost_error" in x for x in steps)


def test_an_algorithm_or_cost_without_a_place_is_refused():
    with pytest.raises(UserError, match="ppo, remax, grpo, safe-rlhf"):
        hybridflow.build(algorithm="dpo")
    with pytest.raises(UserError, match="safe-rlhf alone"):
        hybridflow.build(cost=LongAnswer())
