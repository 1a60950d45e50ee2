"""Ranks of a sharded learner as processes of this machine, and batches for every objective of the catalogue."""

from __future__ import annotations

import asyncio
import gc
import json
import math
import sys
import tempfile
import warnings
from dataclasses import dataclass, replace
from itertools import groupby
from pathlib import Path
from typing import Any

import torch
from palaestra import catalogue
from palaestra.models.eyes import EYES
from palaestra.models.forward import forward
from palaestra.models.load import load
from palaestra.run.benches import bench_by_name
from palaestra.run.context import RunContext
from palaestra.run.driver import prepare, train
from palaestra.scale.local_ranks import FORKS, run_ranks
from palaestra.scale.sharded import ShardedModel
from palaestra.settings.overrides import make_smallest
from palaestra.step import gather_groups, start
from palaestra.types import Batch, Reward
from palaestra.update import backward, pack, recount
from palaestra.values import override
from torch.distributed.tensor import DTensor

FORKS.set_forkserver_preload(
    [
        "palaestra.cli.train",
        "palaestra.scale.local_ranks",
        "transformers.models.llama.modeling_llama",
        "peft",
        "tests.shards",
    ]
)


@dataclass(frozen=True)
class Case:
    """An objective and a batch for it, in float64; `heads` are what its model must have."""

    name: str
    objective: Any
    batch: Batch
    heads: tuple[str, ...]


def bytes_alive() -> int:
    """Of every tensor that Python knows of, memory that is shared once."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # deprecated objects that torch keeps say so when they are looked at
        tensors = [x for x in gc.get_objects() if isinstance(x, torch.Tensor) and not isinstance(x, DTensor)]
    memory = {x.untyped_storage().data_ptr(): x.untyped_storage().nbytes() for x in tensors if x.device.type == "cpu"}
    return sum(memory.values())


def cases_of(name: str, recipe: Any) -> list[Case]:
    """A case for each learner of a recipe, from one collection of groups.

    Log-probs and advantages are moved at random: off the policy ratios differ from 1 and clips act, and a group whose
    rewards happen to be equal has something to say.
    """
    bench, players = bench_by_name("chain")
    ctx = RunContext(bench=bench, seed=0, models={"policy": load("tiny")}, drive=train, players=players)
    prepare(recipe, ctx)
    recipe, state = ctx.at(recipe, 0), start(3)
    ready, _ = asyncio.run(gather_groups(recipe, ctx, state))
    found = []
    for learner_name, learner in recipe.learners.items():
        batch = batch_of(learner_name, learner, ctx, ready) or batch_of(learner_name, learner, ctx, paid_in_turn(ready))
        label = name if len(recipe.learners) == 1 else f"{name}/{learner_name}"
        found.append(Case(label, learner.objective, moved(batch), learner.heads))
    return found


def every_case() -> list[Case]:
    """Of every recipe of the catalogue, three prompts with the fewest samples; ranks refuse those with eyes."""
    found = []
    for entry in catalogue.all_entries():
        if entry.built and entry.shape == "recipe":
            recipe = override(make_smallest(catalogue.recipe(entry.id)), "schedule.prompts", 3)
            if not any(EYES in learner.heads for learner in recipe.learners.values()):
                found += cases_of(entry.id, recipe)
    return found


def batch_of(name: str, learner: Any, ctx: Any, groups: Any) -> Batch | None:
    examples, _ = learner.credit(groups, ctx.measure(groups, learner.needs), {})
    return pack(examples, name, torch.float64)


def paid_in_turn(groups: Any) -> list[Any]:
    """The groups with rewards 0, 1, 0, 1: some methods learn nothing from rewards that are equal."""
    return [
        replace(g, episodes=tuple(replace(e, reward=Reward(total=i % 2)) for i, e in enumerate(g.episodes)))
        for g in groups
    ]


def moved(batch: Batch) -> Batch:
    generator, columns = torch.Generator().manual_seed(0), dict(batch.columns)
    for name in sorted(columns):
        if name.endswith("logp") or name == "advantage":
            noise = 0.1 * torch.randn(columns[name].shape, generator=generator, dtype=torch.float64)
            columns[name] = columns[name] + (noise * batch.mask if noise.shape == batch.mask.shape else noise)
    return replace(batch, columns=columns)


def model_of(heads: tuple[str, ...], lora: Any = None, recompute: bool = False) -> Any:
    """The tiny model in float64, its weights moved a little, so that every term of a loss has a gradient."""
    model = load("tiny", lora=lora)
    for name in heads:
        model.add_head(name)
    model.recompute = recompute
    generator = torch.Generator().manual_seed(1)
    for module in (model.module, *model.heads.values()):
        module.double()
    with torch.no_grad():
        for p in model.trainable():
            p += 0.02 * torch.randn(p.shape, generator=generator, dtype=p.dtype)
    return model


def gradient_of(model: Any) -> dict[str, torch.Tensor]:
    """Whole gradients by name; they are forgotten on the way."""
    found = {}
    for name, p in model.named_trainable().items():
        if p.grad is not None:
            whole = p.grad.full_tensor() if hasattr(p.grad, "full_tensor") else p.grad
            found[name] = whole.detach().clone()
            p.grad = None
    return found


def distance(a: dict[str, torch.Tensor], b: dict[str, torch.Tensor]) -> float:
    """|a - b| / |b| over all weights. Raises AssertionError where other weights have a gradient."""
    assert a.keys() == b.keys(), sorted(a.keys() ^ b.keys())
    apart = sum(float((a[n] - b[n]).pow(2).sum()) for n in b) ** 0.5
    return apart / sum(float(b[n].pow(2).sum()) for n in b) ** 0.5


def odd(batch: Batch) -> Batch:
    """The batch with an odd number of units, so that two ranks cannot have equal shares."""
    units = batch.n_units - (batch.n_units % 2 == 0 and batch.n_units > 2)
    return recount(batch.part((batch.unit_B < units).nonzero()[:, 0]))


def thin(batch: Batch) -> Batch:
    """The first unit of a batch as a batch of its own: fewer parts than ranks."""
    return recount(batch.part((batch.unit_B == batch.unit_B[0]).nonzero()[:, 0]))


@dataclass(frozen=True)
class Found:
    """What a sharded gradient is beside that of one process. `hands` are the parts that each rank had, without ghosts."""

    name: str
    couples: str
    hands: tuple[int, ...]
    norm: float  # of the gradient in one process
    error: float  # relative, of the gradient
    metrics: float  # the largest error of a metric, relative where it is larger than 1


def compare(mesh: Any, cases: Path, lora: Any = None, recompute: bool = False, spoil: Any = None) -> list[Found]:
    """Every case on these ranks and in one process, odd and thin. `spoil(sharded, case)` plants a fault, and
    returns the objective to take."""
    found: list[Found] = []
    for heads, each in groupby(sorted(stored(cases), key=lambda c: c.heads), key=lambda c: c.heads):
        plain = model_of(heads, lora, recompute)
        sharded = ShardedModel(model_of(heads, lora, recompute), mesh)
        for case in each:
            objective = spoil(sharded, case) if spoil else case.objective
            for batch in (odd(case.batch), thin(case.batch)):
                found.append(compare_one(plain, sharded, case, objective, batch))
    return found


def compare_one(plain: Any, sharded: Any, case: Case, objective: Any, batch: Batch) -> Found:
    budget = 1 + 10**6 * sharded.mesh.get_rank()  # every unit is a part: the least room counts
    metrics = sharded.backward(objective, batch, budget)
    gradient = gradient_of(sharded.model)
    every = sharded.hands(batch, sharded.split(case.objective, batch, budget))
    hands = [sum(not turn.ghost for turn in hand) for hand in every]
    if sharded.mesh.get_rank():
        return Found(case.name, case.objective.couples, tuple(hands), 0.0, 0.0, 0.0)
    needs = case.objective.needs
    expected = backward(lambda b: forward(plain, b, needs), case.objective, batch, budget, plain.packs)
    whole = gradient_of(plain)
    assert metrics.keys() == expected.keys()
    off = [abs(float(metrics[k]) - float(v)) / max(1.0, abs(float(v))) for k, v in expected.items()]
    norm = sum(float(g.pow(2).sum()) for g in whole.values()) ** 0.5
    return Found(case.name, case.objective.couples, tuple(hands), norm, distance(gradient, whole), max(off))


def store(path: Path, cases: list[Case]) -> Path:
    torch.save(cases, path)
    return path


def stored(path: Path) -> list[Case]:
    return torch.load(path, weights_only=False)


def main(out: str) -> None:
    """Measures every objective on 1, 2 and 3 ranks, and writes the numbers."""
    record: dict[str, Any] = {"command": f"python -m tests.shards {out}", "torch": torch.__version__, "ranks": {}}
    with tempfile.TemporaryDirectory() as folder:
        cases = store(Path(folder) / "cases", every_case())
        for ranks in (1, 2, 3):
            found = run_ranks(ranks, compare, cases, seconds=1500)[0]
            worst = max(found, key=lambda f: math.inf if math.isnan(f.error) else f.error)
            record["ranks"][str(ranks)] = {
                "comparisons": len(found),
                "with unequal hands": sum(min(f.hands) < max(f.hands) for f in found),
                "with an empty hand": sum(min(f.hands) == 0 for f in found),
                "largest relative error of a gradient": worst.error,
                "of": worst.name,
                "largest error of a metric": max(f.metrics for f in found),
                "smallest norm of a gradient": min(f.norm for f in found),
            }
            print(ranks, record["ranks"][str(ranks)], flush=True)
    Path(out).write_text(json.dumps(record, indent=1) + "\n")


if __name__ == "__main__":
    from tests.shards import main as measure  # under the name by which its processes know it

    measure(sys.argv[1])
