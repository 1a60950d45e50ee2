"""What roles that learn together hold in memory, with all weights and with adapters of one base.

    python -m benchmarks.roles --out benchmarks/roles.json

Each recipe's models are made as a run makes them, and every tensor that they have is counted once, wherever it is shared:
bytes of weights and buffers, and what an update adds, 4 bytes of a gradient and 8 of AdamW's moments for each trained number
in float32. Activations and caches are not counted. Nothing is trained.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

from torch.nn import Module

import palaestra as pl
from palaestra.markdown import table
from palaestra.models.load import load
from palaestra.models.lora import LoRA
from palaestra.run.benches import bench_by_name
from palaestra.run.context import RunContext
from palaestra.run.driver import prepare_models, train
from palaestra.store.checkpoint import write_atomic

RANK = 8
UPDATE = 4 + 8  # bytes of a trained number: its gradient and two moments
ROWS = ("joyagents-r1", "cory", "multi-agent-evolve", "duoguard", "agentstealth")
TASKS = {"joyagents-r1": "store"}


def recipe_of(row: str) -> pl.Recipe:
    """The recipe in which the roles learn: of a pipeline its last part."""
    made = pl.recipe(row)
    while isinstance(made, pl.Pipeline):
        made = list(made.parts.values())[-1].runnable
    assert isinstance(made, pl.Recipe), f"{row} is a {type(made).__name__}"
    return made


def held(row: str, rank: int, model: str = "tiny") -> dict[str, Any]:
    """Models of a row by name, and bytes; `rank` 0 = all weights are trained."""
    bench, players = bench_by_name(TASKS.get(row, "chain"))
    lora = LoRA(rank=rank) if rank else None
    ctx = RunContext(
        bench=bench,
        seed=0,
        models={"policy": load(model, lora=lora)},
        players=players,
        lora=lora,
        drive=train,
    )
    recipe = recipe_of(row)
    prepare_models(recipe, ctx)
    modules: list[Module] = [m.module for m in ctx.models.values()]
    modules += [h for m in ctx.models.values() for h in m.heads.values()]
    tensors = {
        t.untyped_storage().data_ptr(): t.untyped_storage().nbytes()
        for m in modules
        for t in (*m.parameters(), *m.buffers())
    }
    trained = {
        p.data_ptr(): p.numel()
        for name in recipe.learners
        for m in (ctx.model(name).module, *ctx.model(name).heads.values())
        for p in m.parameters()
        if p.requires_grad
    }
    return {
        "models": sorted(ctx.models),
        "learners": sorted(recipe.learners),
        "weights": sum(tensors.values()),
        "trained": sum(trained.values()),
        "update": UPDATE * sum(trained.values()),
    }


def measure() -> dict[str, Any]:
    base = sum(p.numel() * p.element_size() for p in load("tiny").module.parameters())
    rows = {r: {"full": held(r, 0), "adapters": held(r, RANK)} for r in ROWS}
    return {"base": base, "rank": RANK, "rows": rows}


def memory_table(results: dict[str, Any]) -> str:
    """Megabytes of weights, and of all with what an update adds."""
    mb = lambda x: f"{x / 1e6:.2f}"
    rows = list[tuple[str, ...]]()
    for row, each in results["rows"].items():
        full, small = each["full"], each["adapters"]
        whole = [x["weights"] + x["update"] for x in (full, small)]
        rows.append(
            (
                row,
                ", ".join(full["models"]),
                ", ".join(full["learners"]),
                mb(full["weights"]),
                mb(small["weights"]),
                mb(whole[0]),
                mb(whole[1]),
                f"{whole[1] / whole[0]:.0%}",
            )
        )
    return table(
        rows,
        "method",
        "models",
        "that learn",
        "weights, MB",
        "with adapters",
        "and an update, MB",
        "with adapters",
        "of it",
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, required=True)
    given = parser.parse_args()
    results = measure()
    write_atomic(given.out, json.dumps(results, indent=1) + "\n")
    print(memory_table(results))


if __name__ == "__main__":
    main()
