"""What a change costs every user: this checkout against another one, in pairs.

    git worktree add /tmp/before 717f9a2
    python benchmarks/checkouts.py /tmp/before       # writes benchmarks/checkouts.json

Each job runs in a process of its own, one checkout after the other, and the order changes from pair
to pair. Processor time is compared, which other processes on the machine move least. A step of GRPO
is what a run of 13 steps takes beyond one of a single step, over 12; the number of tokens that both
checkouts sampled is written down, as a step is the same work only where it is the same.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.busy import timed
from palaestra.run.machine import describe_machine
from palaestra.stats import mean_interval
from palaestra.store.checkpoint import write_atomic

HERE = Path(__file__).resolve().parents[1]
TRAIN = ["-m", "palaestra", "train", "--evaluate", "0", "--out"]
STEPS = 13


def processor_seconds(checkout: Path, arguments: list[str]) -> float:
    """Of a Python process with this checkout's package. Raises where it fails."""
    names = {"PYTHONPATH": str(checkout), "OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1"}
    what = f"{' '.join(arguments)} in {checkout}"
    command = [sys.executable, *arguments]
    return timed(command, what, cwd=checkout, env=dict(os.environ) | names)["processor_seconds"]


def jobs(checkout: Path) -> dict[str, float]:
    with tempfile.TemporaryDirectory() as folder:

        def train(steps: int) -> float:
            return processor_seconds(
                checkout, [*TRAIN, f"{folder}/{steps}", f"schedule.steps={steps}"]
            )

        one, many = train(1), train(STEPS)
        lines = (Path(folder) / str(STEPS) / "metrics.jsonl").read_text().splitlines()
        return {
            "import palaestra": processor_seconds(checkout, ["-c", "import palaestra"]),
            "palaestra list": processor_seconds(checkout, ["-m", "palaestra", "list"]),
            "train, one step": one,
            "a step of GRPO": (many - one) / (STEPS - 1),
            "tokens": float(sum(json.loads(line)["sampled_tokens"] for line in lines)),
        }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("before", type=Path)
    parser.add_argument("--pairs", type=int, default=10)
    given = parser.parse_args()
    sides = {"before": given.before.resolve(), "now": HERE}
    machine = describe_machine("cpu")  # with its load before the first pair
    pairs: list[dict[str, dict[str, float]]] = []
    for i in range(given.pairs):
        order = sorted(sides, reverse=i % 2 == 1)
        pairs.append({side: jobs(sides[side]) for side in order})
        print(f"pair {i + 1} of {given.pairs}", flush=True)
    rows: dict[str, Any] = {}
    for job in pairs[0]["now"]:
        each = {side: [p[side][job] for p in pairs] for side in sides}
        logs = np.log(np.array(each["now"]) / np.array(each["before"]))
        ratio = mean_interval(logs.tolist())
        rows[job] = {
            **{side: float(np.median(each[side])) for side in sides},
            "ratio": float(np.exp(ratio.mean)),
            "ci95": [float(np.exp(x)) for x in (ratio.low, ratio.high)],
        }
        print(f"{job:18}", json.dumps(rows[job]))
    commit = subprocess.run(
        ["git", "rev-parse", "--short", "HEAD"], cwd=sides["before"], capture_output=True, text=True
    )
    found = {
        "bench": "checkouts",
        "command": f"python benchmarks/checkouts.py CHECKOUT --pairs {given.pairs}",
        "before": commit.stdout.strip(),
        "unit": "processor seconds; the ratio is the geometric mean over pairs, now over before",
        "machine": machine,
        "rows": rows,
    }
    write_atomic(HERE / "benchmarks/checkouts.json", json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    main()
