"""The sweep behind the default hyper-parameters of `palaestra train`: learning rate x group shape,
paired seeds, equal tokens.

    python benchmarks/defaults.py        # about 20 minutes on two cores; writes benchmarks/defaults.json

Most settings end at the ceiling of the default task, so they are judged by the way there as well,
the mean reward over the whole run: the default is the fastest of those that end where no other ends
higher. Finished cells are kept in runs/defaults and not run again.
"""

from __future__ import annotations

import argparse
import json
from itertools import product
from pathlib import Path

from palaestra.ledger.cells import CellRequest, run_all
from palaestra.ledger.measures import Final, Logged
from palaestra.run.machine import describe_machine
from palaestra.settings.fields import Settings
from palaestra.stats import mean_interval, share_of_runs
from palaestra.store.checkpoint import write_atomic
from palaestra.terminal.progress import Headway

RATES = (3e-5, 1e-4, 3e-4)
SHAPES = ((16, 8), (8, 16), (32, 4))  # prompts x samples
METRIC = Logged("reward", last=0)
PROBLEMS = 256  # held out, of each run


def asked(rate: float, prompts: int, n: int, seed: int, tokens: int) -> CellRequest:
    overrides = {"optimiser.lr": rate, "schedule.prompts": prompts, "collect.links.0.n": n}
    settings = Settings(task="chain", seed=seed, evaluate=PROBLEMS, set=overrides)
    return CellRequest(
        label=f"lr {rate:g}, {prompts} x {n}, seed {seed}", settings=settings, tokens=tokens
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--tokens", type=int, default=40_000)
    given = parser.parse_args()
    settings = [(rate, prompts, n) for rate, (prompts, n) in product(RATES, SHAPES)]
    requests = [asked(*s, seed, given.tokens) for s in settings for seed in range(given.seeds)]
    with Headway("defaults") as headway:
        outcomes = run_all(requests, Path("runs/defaults"), headway)
    rows = []
    for i, (rate, prompts, n) in enumerate(settings):
        cells = [o.cell for o in outcomes[i * given.seeds : (i + 1) * given.seeds] if o.cell]
        reward = mean_interval([METRIC(c) for c in cells])
        after = share_of_runs([Final()(c) for c in cells], PROBLEMS)
        rows.append(
            {"lr": rate, "prompts": prompts, "n": n, "reward": reward.json(), "after": after.json()}
        )
    rows.sort(key=lambda r: -r["reward"]["mean"])
    command = f"python benchmarks/defaults.py --seeds {given.seeds} --tokens {given.tokens}"
    found = {
        "command": command,
        "metric": "mean training reward over the whole run",
        "machine": describe_machine("cpu"),
        "rows": rows,
    }
    write_atomic(Path("benchmarks/defaults.json"), json.dumps(found, indent=1) + "\n")
    for r in rows:
        print(
            f"lr {r['lr']:g}  {r['prompts']} x {r['n']}  reward {r['reward']['mean']:.3f}, then "
            f"{r['after']['mean']:.1%}"
        )


if __name__ == "__main__":
    main()
