"""`palaestra compare`: several recipes on the same problem, seeds and budget of sampled tokens."""

from __future__ import annotations

import argparse
import json
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

from palaestra.cli.train import percent, read_settings
from palaestra.errors import Fault, UserError
from palaestra.ledger.cells import CellOutcome, CellRequest, run_all
from palaestra.ledger.experiment import Cell
from palaestra.stats import mean_interval, paired
from palaestra.store.checkpoint import made, write_atomic


def run(arguments: argparse.Namespace) -> dict[str, Any]:
    methods = [w for w in arguments.words if "=" not in w and not w.startswith("@")]
    if len(methods) < 2:
        raise UserError("compare needs at least two recipes: palaestra compare grpo rloo")
    shared, out = [w for w in arguments.words if w not in methods], made(Path(arguments.out))
    read = {m: read_settings(argparse.Namespace(**vars(arguments) | {"words": [m, *shared]})) for m in methods}
    settings = read[methods[0]]
    asked = [
        CellRequest(
            label=f"{m}, seed {seed}",
            settings=replace(read[m], seed=seed),
            tokens=arguments.tokens,
        )
        for seed in range(arguments.seeds)
        for m in methods
    ]
    outcomes = run_all(asked, out, arguments.jobs, lambda text: print(text, file=sys.stderr, flush=True))
    cells = {m: [finished(o) for o in outcomes if o.request.settings.recipe == m] for m in methods}
    result = {
        "task": settings.problem,
        "model": settings.model,
        "budget_tokens": arguments.tokens,
        "seeds": arguments.seeds,
        "methods": {m: summary(found) for m, found in cells.items()},
        "differences": {
            f"{m} - {methods[0]}": paired(after(cells[methods[0]]), after(cells[m])).json() for m in methods[1:]
        },
    }
    write_atomic(out / "compare.json", json.dumps(result, indent=1))
    draw(cells, out)
    if not arguments.json:
        table(result, out)
    return result


def finished(outcome: CellOutcome) -> Cell:
    if outcome.cell is None:
        raise Fault("cell", f"{outcome.request.label} {outcome.error}; the others are kept, run it again to go on")
    return outcome.cell


def after(cells: list[Cell]) -> list[float]:
    return [c.summary["accuracy_after"]["mean"] for c in cells]


def summary(cells: list[Cell]) -> dict[str, Any]:
    return {
        "before": mean_interval([c.summary["accuracy_before"]["mean"] for c in cells]).json(),
        "after": mean_interval(after(cells)).json(),
        "values": after(cells),
        "sampled_tokens": [c.summary["sampled_tokens"] for c in cells],
        "seconds": [c.summary["wall_seconds"] for c in cells],
        "folders": [str(c.folder) for c in cells],
    }


def draw(cells: dict[str, list[Cell]], out: Path) -> None:
    from palaestra.view.plots import compare

    # the picture shows where runs ended, which a cell's summary holds whatever its shape
    judged = lambda c: [*c.steps, {"step": c.summary.get("steps", 0), "evaluation": c.summary["accuracy_after"]}]
    compare({m: [judged(c) for c in found] for m, found in cells.items()}, out / "compare.png")


def table(result: dict[str, Any], out: Path) -> None:
    budget = f"{result['budget_tokens']:,} sampled tokens a run, {result['seeds']} seeds"
    print(f"{result['model']} on {result['task']}, {budget} (95% intervals)")
    for m, s in result["methods"].items():
        print(f"  {m:<20} {100 * s['before']['mean']:5.1f}% -> {percent(s['after'])}")
    for name, d in result["differences"].items():
        print(f"  {name:<20} {percent(d)}, paired by seed")
    print(f"picture  {out / 'compare.png'}")
