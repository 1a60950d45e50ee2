"""A run whose learner is on two ranks, and a run in one process: the same steps, and checkpoints that either goes on from."""

import asyncio
import json
import os
import shutil
import time
from dataclasses import dataclass, replace

import pyarrow.parquet as pq
import pytest
import torch
import torch.distributed as dist
from palaestra.errors import Fault
from palaestra.models.load import load, weights_sha256
from palaestra.models.lora import LoRA
from palaestra.models.optimiser_files import FOLDER, made_state, read_state
from palaestra.objective.algebra import Algebra
from palaestra.recipes.base import grpo, ppo, sft
from palaestra.run.benches import bench_by_name
from palaestra.run.context import RunContext
from palaestra.run.driver import train
from palaestra.run.plan import Plan
from palaestra.scale.learning import Follower, follow, sharded_context
from palaestra.scale.local_ranks import MEETING, run_ranks
from palaestra.scale.weights import publish, set_weights
from palaestra.store.checkpoint import find_latest
from palaestra.store.columns import path
from palaestra.values import override
from safetensors.torch import load_file

STEPS, STOP = 3, 1
RUNS = {  # settings of a context, and how far weights may be from those of one process, as a share of the way they went
    "sft": (sft.build(), {}, 1e-4),
    "grpo": (grpo.build(kl=0.1), {}, 1e-4),
    "ppo": (ppo.build(), {}, 1e-4),
    "adapters": (grpo.build(kl=0.1), {"lora": LoRA(rank=4)}, 1e-4),
    "bfloat16": (sft.build(), {"dtype": "bfloat16"}, 0.1),
    "rounded": (grpo.build(kl=0.1), {"dtype": "bfloat16"}, None),  # a sampled token may differ
}


def recipe_of(name):
    recipe = override(RUNS[name][0], "schedule.prompts", 3)
    recipe = recipe if name in ("sft", "bfloat16") else override(recipe, "collect.links.0.n", 4)
    return override(recipe, "learners.policy.update.budget", 300)


def context(name, steps, out=None):
    bench, players = bench_by_name("chain")
    plan = Plan(steps=steps, evaluate=0, checkpoint_every=1, keep=9)
    models = {"policy": load("tiny", **RUNS[name][1])}
    return RunContext(bench=bench, seed=5, models=models, drive=train, out=out, players=players, plan=plan)


def told(mesh, order=None):
    """An order, from rank 0 to all. A real run has a carrier whose waiting has no deadline."""
    box = [order]
    dist.broadcast_object_list(box, group=mesh.get_group(), group_src=0)
    return box[0]


def sharded_run(mesh, name, steps, out):
    """Rank 0 drives; returns the digest of the weights, and that of a model that they were published to."""
    if mesh.get_rank():
        return follow(Follower(recipe_of(name), context(name, steps), mesh), lambda: told(mesh))
    ctx = sharded_context(context(name, steps, out), mesh, lambda order: told(mesh, order))
    try:
        result = asyncio.run(train(recipe_of(name), ctx))
        return result.metrics["weights_sha256"], digest_of_published(publish(ctx, ["policy"], steps), name)
    finally:
        ctx.close()


def digest_of_published(publication, name):
    """Of a model of a receiver, which starts as the run's did, with the weights put into it."""
    model = load("tiny", **RUNS[name][1])
    for head in recipe_of(name).learners["policy"].heads:
        model.add_head(head)
    set_weights(model, publication.weights["policy"])
    return weights_sha256(model)


def both_ways(mesh, name, folder):
    """Without a stop; with one; and from where one process stopped."""
    whole = sharded_run(mesh, name, STEPS, folder / "whole")
    sharded_run(mesh, name, STOP, folder / "stopped")
    if mesh.get_rank() == 0:
        shutil.copytree(folder / "stopped", folder / "moved")
    stopped = sharded_run(mesh, name, STEPS, folder / "stopped")
    return whole, stopped, sharded_run(mesh, name, STEPS, folder / "single")


def weights(folder, name, step):
    """Of the policy in a checkpoint, heads among them; of bfloat16 the masters, which are exact."""
    at = folder / "checkpoints" / f"step-{step}"
    whole = optimiser_of(find_latest(folder)[0])
    if "masters" in whole and step == STEPS:
        return dict(enumerate(whole["masters"]))
    files = [at / "model.safetensors", at / "heads.safetensors"]
    return {k: v for f in files if f.exists() for k, v in load_file(f).items()}


def optimiser_of(checkpoint):
    """The state of the policy's optimiser, with its tensors."""
    stored = checkpoint.state()["optimisers"]["policy"]
    return made_state(read_state(stored, checkpoint.path / FOLDER / "policy"))


def apart(a, b):
    return sum(float((a[k].double() - b[k].double()).pow(2).sum()) for k in b) ** 0.5


def metrics(folder):
    return [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]


def moves(folder):
    """Weights and ratios of the tokens of the first step, as its rollout file holds them."""
    rows = [r for e in pq.ParquetFile(path(folder, 1)).read().to_pylist() for r in e["rows"]]
    told = [[x for r in rows for x in r[name] if x is not None] for name in ("weight", "ratio")]
    return [x for x in told if x]  # what was recorded by others has no ratio


def layout(folder):
    """Names, types and shapes of everything that a checkpoint holds."""
    found = {}
    for file in sorted(folder.rglob("*.safetensors")):
        tensors = load_file(file)
        found[str(file.relative_to(folder))] = sorted((k, v.dtype, tuple(v.shape)) for k, v in tensors.items())
    return found, sorted(str(p.relative_to(folder)) for p in folder.rglob("*"))


def start_of(name, keys):
    """The weights before the first step, under the names of `weights`; a value head starts at zero."""
    model = load("tiny", dtype=RUNS[name][1].get("dtype", "float32"))
    found = dict(enumerate(model.trainable())) | model.module.state_dict()
    return {k: found.get(k, torch.zeros(())).detach() for k in keys}


@pytest.mark.parametrize("name", [n for n, run in RUNS.items() if run[2]])
def test_a_checkpoint_goes_from_ranks_to_one_process_and_back(name, tmp_path):
    recipe, allowed = recipe_of(name), RUNS[name][2]
    asyncio.run(train(recipe, context(name, STEPS, tmp_path / "one")))
    asyncio.run(train(recipe, context(name, STOP, tmp_path / "single")))
    whole, stopped, _ = run_ranks(2, both_ways, name, tmp_path)[0]
    assert whole[0] == whole[1], "what is published is what was learned"
    assert whole[0] == stopped[0], "the same ranks end in the same bits, stopped or not"
    asyncio.run(train(recipe, context(name, STEPS, tmp_path / "moved")))
    one = weights(tmp_path / "one", name, STEPS)
    way = apart(start_of(name, one), one)
    assert way > 0
    for other in ("whole", "moved", "single"):
        assert apart(weights(tmp_path / other, name, STEPS), one) < allowed * way, other
    assert layout(tmp_path / "whole" / "checkpoints") == layout(tmp_path / "one" / "checkpoints")
    for mine, theirs in zip(metrics(tmp_path / "whole"), metrics(tmp_path / "one"), strict=True):
        assert mine.keys() == theirs.keys()
        assert mine["grad_norm"] == pytest.approx(theirs["grad_norm"], rel=max(allowed, 1e-3))
    for mine, theirs in zip(moves(tmp_path / "whole"), moves(tmp_path / "one"), strict=True):
        assert len(mine) > 20 and mine == pytest.approx(theirs, rel=max(allowed, 1e-3), abs=1e-6)


def test_ranks_measure_an_engine_that_rounds_otherwise(tmp_path):
    """The followers take part in a measurement that only rank 0, which has the engine, knows to be due."""
    asyncio.run(train(recipe_of("rounded"), context("rounded", 1, tmp_path / "one")))
    run_ranks(2, sharded_run, "rounded", 1, tmp_path / "ranks")
    (mine,), (theirs,) = metrics(tmp_path / "ranks"), metrics(tmp_path / "one")
    assert theirs["mismatch_max"] > 0
    assert mine["mismatch_max"] == pytest.approx(theirs["mismatch_max"], rel=1e-6)


def orders_of_a_run(mesh):
    """What rank 0 has the others do in a run whose rollouts are in another process, which here is a thread."""
    if mesh.get_rank():
        return follow(Follower(recipe_of("grpo"), context("grpo", STEPS), mesh), lambda: told(mesh))
    from palaestra.scale.carrier import RayCarrier
    from palaestra.scale.cluster import Cluster

    from tests.fake_ray import fake_ray

    orders = []
    ctx = sharded_context(context("grpo", STEPS), mesh, lambda order: (orders.append(order[0]), told(mesh, order)))
    ctx.open_carrier = lambda recipe, c: RayCarrier(Cluster(workers=1), recipe, c)
    with pytest.MonkeyPatch.context() as patch, fake_ray(patch):
        asyncio.run(train(recipe_of("grpo"), ctx))
    ctx.close()
    return orders


def test_where_rollouts_are_elsewhere_no_step_gathers_the_whole_model():
    """Weights are shown for publications, and in the end for the digest."""
    pytest.importorskip("ray")
    orders = run_ranks(2, orders_of_a_run)[0]
    assert orders == ["learn", "show"] * STEPS + ["close"]


@dataclass(frozen=True)
class Unbounded(Algebra):
    """A loss that is not a number."""

    def __call__(self, out, batch):
        return (out["logp"] * float("nan")).sum(), {}


def broken_run(mesh, folder):
    recipe, name = recipe_of("sft"), "sft"
    recipe = replace(recipe, learners={"policy": replace(recipe.learners["policy"], objective=Unbounded())})
    if mesh.get_rank():
        return follow(Follower(recipe, context(name, 1), mesh), lambda: told(mesh))
    ctx = sharded_context(context(name, 1, folder), mesh, lambda order: told(mesh, order))
    before = weights_sha256(ctx.model("policy"))
    result = asyncio.run(train(recipe, ctx))
    ctx.close()
    return before, result.metrics["weights_sha256"]


def test_a_failed_update_is_dumped_whole(tmp_path):
    before, after = run_ranks(2, broken_run, tmp_path)[0]
    assert before == after
    (line,) = metrics(tmp_path)
    assert line["skipped"] == 1.0
    assert weights_sha256(load(str(tmp_path / "cases" / "step-0-policy" / "model"))) == before


def deserted_run(mesh, folder):
    """Seconds until rank 0 knows that the other is gone."""
    if mesh.get_rank():
        told(mesh)
        os._exit(0)  # at its first order
    begin = time.monotonic()
    with pytest.raises(RuntimeError):
        sharded_run(mesh, "sft", 1, folder)
    (folder / "seconds").write_text(str(time.monotonic() - begin))


def test_a_rank_that_is_gone_ends_the_step_with_an_error(tmp_path):
    with pytest.raises(Fault, match="rank 1 ended without a word"):
        run_ranks(2, deserted_run, tmp_path)
    assert float((tmp_path / "seconds").read_text()) < 2 * MEETING
