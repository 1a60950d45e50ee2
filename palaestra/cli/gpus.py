"""What a run needs, counted from the config.json of a model: GPUs and their memory, without weights."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch

from palaestra.method import Recipe
from palaestra.planning.dimensions import module_of
from palaestra.planning.paper import FROZEN_STATE, STATE
from palaestra.run import setup
from palaestra.scale.cluster import Cluster
from palaestra.services.chat.named import is_endpoint
from palaestra.settings import overrides
from palaestra.settings.fields import Settings

WIDE = 2  # times the bytes of bfloat16 that a frozen or sampling weight has in float32
ROLES = {
    "the learner": "learner",
    "further ranks": "further learner ranks",
    "workers": "rollout processes",
    "judges": "judges",
}


def count_needs(path: Path, settings: Settings) -> dict[str, Any]:
    """GPUs of each kind of process, and the memory that weights, optimiser and attention cache take
    on each of them, in GB; activations come on top.

    Args:
        path: a model's config.json.
        settings: the recipe, adapters, number format and cluster of the run.

    Raises:
        UserError: the file is no model's configuration.
    """
    module = module_of(path)
    weights = sum(p.numel() for p in module.parameters())
    lora = setup.lora_of(settings)
    if lora:
        with torch.device("meta"):
            module = lora(module)
    trained = sum(p.numel() for p in module.parameters() if p.requires_grad)
    recipe = overrides.recipe_of(settings)
    # adapters are switched off for a reference, which shares the weights below them
    named = recipe.references.values() if isinstance(recipe, Recipe) and not lora else ()
    references = sum(not (isinstance(x, str) and is_endpoint(x)) for x in named)
    wide = WIDE if settings.dtype == "float32" else 1
    still = FROZEN_STATE * wide * (weights - trained if lora else 0)
    models = FROZEN_STATE * wide * weights * (1 + references)
    cluster = Cluster.read(settings.cluster) if settings.cluster else Cluster(workers=0)
    cache = settings.cache_mb / 1e3
    learning = STATE * trained + still + models - FROZEN_STATE * wide * weights
    sampling = 0.0 if cluster.workers else cache
    memory = {
        "the learner": learning / cluster.learners / 1e9 + sampling,
        "further ranks": learning / cluster.learners / 1e9,
        "workers": models / 1e9 + cache,
        "judges": models / 1e9,
    }
    asked = cluster.asked_for(on_gpus=True)
    rows = list[dict[str, Any]]()
    for role in dict.fromkeys(name for name, _, _ in asked):
        gpus = [g for name, _, g in asked if name == role]
        split = max(1.0, gpus[0])
        rows.append(
            {
                "role": ROLES[role],
                "processes": len(gpus),
                "gpus_each": gpus[0],
                "gb_each_gpu": round(memory[role] / split, 1),
            }
        )
    return {
        "config": path.name,
        "recipe": settings.recipe,
        "parameters": weights,
        "trained": trained,
        "references": references,
        "gpus": gpus_for([g for _, _, g in asked]),
        "processes": rows,
    }


def gpus_for(asked: list[float]) -> int:
    """Whole GPUs that hold all that is asked for; shares of one GPU stand beside each other."""
    rest = list[float]()  # free shares of the GPUs that are divided
    whole = 0
    for gpus in sorted(asked, reverse=True):
        if gpus >= 1:
            whole += round(gpus)
        elif gpus > 0:
            at = next((i for i, free in enumerate(rest) if free >= gpus - 1e-9), None)
            if at is None:
                rest.append(1 - gpus)
            else:
                rest[at] -= gpus
    return whole + len(rest)


def show(needs: dict[str, Any]) -> Iterator[str]:
    """Lines for people."""
    also = f", {needs['references']} frozen reference" if needs["references"] else ""
    yield f"{needs['recipe']} with {needs['config']}: {needs['parameters'] / 1e9:.2f} billion weights"
    yield f"  {needs['trained'] / 1e9:.2f} billion are trained{also}; no weights were read"
    yield f"GPUs: {needs['gpus']}"
    for row in needs["processes"]:
        gpus = f"{row['gpus_each']:g} each" if row["gpus_each"] else "none"
        yield (
            f"  {row['processes']} x {row['role']:<22} GPUs: {gpus}; {row['gb_each_gpu']} GB on each, "
            "before activations"
        )
