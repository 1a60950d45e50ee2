"""Where a bandit spends its samples: the share of a step's groups that each of six arms gave.

    python benchmarks/curricula/bandit.py      # writes benchmarks/curricula/bandit.json

Knights and knaves of 2 to 7 people, from the model as it is, at one rate. A picture, and no evidence
that a bandit pays: that is what the claims of dump and sec measure.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

import numpy as np

from palaestra.claims.arms import SIX_ARMS
from palaestra.ledger.cells import CellRequest, run_all
from palaestra.run.machine import describe_machine
from palaestra.settings.fields import Settings
from palaestra.store.checkpoint import write_atomic
from palaestra.terminal.progress import Headway

METHODS = ("grpo", "dump", "sec")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--tokens", type=int, default=60_000)
    parser.add_argument("--jobs", type=int, default=0)
    given = parser.parse_args()
    requests = [
        CellRequest(
            label=f"{method}, seed {seed}",
            settings=Settings(
                recipe=method,
                task=SIX_ARMS,
                seed=3000 + seed,
                evaluate=0,
                set={"optimiser.lr": 1e-4},
            ),
            tokens=given.tokens,
        )
        for method in METHODS
        for seed in range(given.seeds)
    ]
    with Headway("bandit") as headway:
        outcomes = run_all(requests, Path("runs/bandit"), headway, given.jobs)
    if broken := [o for o in outcomes if o.cell is None]:
        raise SystemExit(f"{broken[0].request.label}: {broken[0].error}")
    arms = SIX_ARMS.split("+")
    shares: dict[str, list[list[float]]] = {}
    for i, method in enumerate(METHODS):
        cells = [o.cell for o in outcomes[i * given.seeds : (i + 1) * given.seeds] if o.cell]
        runs = [[[float(s.get(f"drawn/{a}") or 0.0) for a in arms] for s in c.steps] for c in cells]
        steps = min(map(len, runs))
        shares[method] = np.mean([r[:steps] for r in runs], axis=0).round(4).tolist()
    found = {
        "command": f"python benchmarks/curricula/bandit.py --seeds {given.seeds} --tokens {given.tokens}",
        "task": SIX_ARMS,
        "arms": arms,
        "seeds": given.seeds,
        "shares": shares,  # by method, step and arm; means over seeds
        "machine": describe_machine("cpu"),
    }
    write_atomic(Path("benchmarks/curricula/bandit.json"), json.dumps(found) + "\n")


if __name__ == "__main__":
    main()
