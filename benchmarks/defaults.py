"""The sweep behind the default hyper-parameters of `palaestra train`: learning rate x group shape, paired seeds, equal tokens.

    python benchmarks/defaults.py --seeds 3 --tokens 60000        # about 20 minutes on two cores; writes benchmarks/defaults.json

Finished cells are kept in runs/defaults and not run again.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import platform
from itertools import product
from pathlib import Path
from typing import Any

from palaestra import __version__
from palaestra.ledger.statistics import mean_interval
from palaestra.runtime import setup
from palaestra.runtime.checkpoint import write_atomic
from palaestra.runtime.plan import Plan

RATES = (3e-5, 1e-4, 3e-4)
SHAPES = ((16, 8), (8, 16), (32, 4))  # prompts x samples


def cell(rate: float, prompts: int, n: int, seed: int, tokens: int) -> dict[str, Any]:
    out = Path("runs/defaults") / f"lr{rate:g}-{prompts}x{n}-s{seed}-{tokens}"
    if (out / "cell.json").is_file():
        return json.loads((out / "cell.json").read_text())
    overrides = {"optimiser.lr": rate, "schedule.prompts": prompts, "collect.links.0.n": n}
    settings = setup.Settings(seed=seed, set=overrides)
    ctx = setup.context(settings, out=out, talk=False)
    ctx.plan = Plan(steps=10**6, tokens=tokens, evaluate=256, checkpoint_every=10**6)
    result = asyncio.run(setup.recipe_of(settings).run(ctx)).metrics
    found = {
        "after": result["accuracy_after"]["mean"],
        "seconds": result["seconds"],
        "tokens": result["sampled_tokens"],
    }
    write_atomic(out / "cell.json", json.dumps(found))
    print(out.name, found, flush=True)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--tokens", type=int, default=60_000)
    given = parser.parse_args()
    rows = []
    for rate, (prompts, n) in product(RATES, SHAPES):
        cells = [cell(rate, prompts, n, seed, given.tokens) for seed in range(given.seeds)]
        after = mean_interval([c["after"] for c in cells])
        rows.append({"lr": rate, "prompts": prompts, "n": n, "after": after.json(), "cells": cells})
    rows.sort(key=lambda r: -r["after"]["mean"])
    machine = f"{platform.machine()}, {platform.python_version()}, palaestra {__version__}"
    command = f"python benchmarks/defaults.py --seeds {given.seeds} --tokens {given.tokens}"
    write_atomic(
        Path("benchmarks/defaults.json"), json.dumps({"command": command, "machine": machine, "rows": rows}, indent=1)
    )
    for r in rows:
        print(f"lr {r['lr']:g}  {r['prompts']} x {r['n']}  {100 * r['after']['mean']:.1f}%")


if __name__ == "__main__":
    main()
