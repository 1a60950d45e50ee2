"""`palaestra compare`: several recipes on the same problem, seeds and budget of sampled tokens."""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
from pathlib import Path
from typing import Any

from palaestra.commands.train import percent, read_settings
from palaestra.ledger.statistics import mean_interval, paired
from palaestra.runtime import setup
from palaestra.runtime.checkpoint import write_atomic
from palaestra.runtime.plan import Plan
from palaestra.types import UserError


def run(arguments: argparse.Namespace) -> dict[str, Any]:
    methods = [w for w in arguments.words if "=" not in w and not w.startswith("@")]
    if len(methods) < 2:
        raise UserError("compare needs at least two recipes: palaestra compare grpo rloo")
    arguments.words = [w for w in arguments.words if w not in methods]
    settings = read_settings(arguments)
    runs = {m: [cell(settings, m, seed, arguments) for seed in range(arguments.seeds)] for m in methods}
    result = {
        "task": settings.problem,
        "model": settings.model,
        "budget_tokens": arguments.tokens,
        "seeds": arguments.seeds,
        "methods": {m: summary(rs) for m, rs in runs.items()},
        "differences": {f"{m} - {methods[0]}": difference(runs[methods[0]], runs[m]) for m in methods[1:]},
    }
    out = Path(arguments.out)
    write_atomic(out / "compare.json", json.dumps(result, indent=1))
    draw(runs, out)
    if not arguments.json:
        table(result, out)
    return result


def cell(settings: setup.Settings, method: str, seed: int, arguments: argparse.Namespace) -> dict[str, Any]:
    """One run of one method; finished cells of the same folder are read, not repeated."""
    out = Path(arguments.out) / f"{method}-s{seed}"
    mine = settings.merged({"recipe": method, "seed": seed, "evaluate": arguments.evaluate})
    identity = {"settings": repr(mine), "tokens": arguments.tokens}
    done = out / "cell.json"
    if done.is_file():
        found = json.loads(done.read_text())
        if found["identity"] != identity:
            raise UserError(f"{out} holds a run with other settings; choose another --out")
        return found
    recipe = setup.recipe_of(mine)
    ctx = setup.context(mine, out=out, talk=False)
    ctx.plan = Plan(steps=10**9, tokens=arguments.tokens, evaluate=mine.evaluate, labels={"recipe": method})
    print(f"{method}, seed {seed} ...", file=sys.stderr, flush=True)
    try:
        result = asyncio.run(recipe.run(ctx))
    finally:
        ctx.close()
    found = {"identity": identity, **result.metrics, "out": str(out)}
    write_atomic(done, json.dumps(found))
    return found


def summary(cells: list[dict[str, Any]]) -> dict[str, Any]:
    after = [c["accuracy_after"]["mean"] for c in cells]
    return {
        "before": mean_interval([c["accuracy_before"]["mean"] for c in cells]).json(),
        "after": mean_interval(after).json(),
        "values": after,
        "sampled_tokens": [c["sampled_tokens"] for c in cells],
        "seconds": [c["seconds"] for c in cells],
    }


def difference(first: list[dict[str, Any]], second: list[dict[str, Any]]) -> dict[str, Any]:
    a, b = ([c["accuracy_after"]["mean"] for c in cells] for cells in (first, second))
    return paired(a, b).json()


def draw(runs: dict[str, list[dict[str, Any]]], out: Path) -> None:
    from palaestra.runtime.plots import compare

    read = lambda c: [json.loads(line) for line in (Path(c["out"]) / "metrics.jsonl").read_text().splitlines()]
    compare({m: [read(c) for c in cells] for m, cells in runs.items()}, out / "compare.png")


def table(result: dict[str, Any], out: Path) -> None:
    budget = f"{result['budget_tokens']:,} sampled tokens a run, {result['seeds']} seeds"
    print(f"{result['model']} on {result['task']}, {budget} (95% intervals)")
    for m, s in result["methods"].items():
        print(f"  {m:<20} {100 * s['before']['mean']:5.1f}% -> {percent(s['after'])}")
    for name, d in result["differences"].items():
        print(f"  {name:<20} {percent(d)}, paired by seed")
    print(f"picture  {out / 'compare.png'}")
