"""`palaestra eval`: how good a model is on held-out problems."""

from __future__ import annotations

import argparse
import asyncio
from typing import Any

from palaestra.cli.train import percent, read_settings
from palaestra.run.evaluation import evaluate
from palaestra.run.served import context


def run(arguments: argparse.Namespace) -> dict[str, Any]:
    settings = read_settings(arguments)
    ctx = context(settings, arguments.key_env, talk=not arguments.json)
    try:
        result = asyncio.run(evaluate(ctx, arguments.n, arguments.k, arguments.temperature))
    finally:
        ctx.close()
    result = {
        "task": settings.problem,
        "model": settings.model,
        "seed": settings.seed,
        "n": result["greedy"]["n"],
        "k": arguments.k,
        **result,
        **{f"chat/{k}": v for c in ctx.clients.values() for k, v in c.meter.numbers().items()},
    }
    if not arguments.json:
        table(result)
    return result


def table(result: dict[str, Any]) -> None:
    print(f"{result['model']} on {result['task']}, {result['n']} held-out problems (95% intervals)")
    for name, found in result.items():
        if isinstance(found, dict) and "mean" in found:
            print(f"  {name:<12} {percent(found)}")
    if len(result["domains"]) > 1:
        print("  greedy by domain")
        for name, found in result["domains"].items():
            print(f"    {name:<24} {percent(found)}  n = {found['n']}")
    if result["errors"]:
        print(f"  {result['errors']} episodes ended in an error and are left out")
