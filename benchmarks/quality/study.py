"""Time to quality: seconds until the training reward stands at a target, in Palaestra and in TRL.

    python -m benchmarks.quality.study --peer-python ~/venv-trl/bin/python --tasks chain
    python -m benchmarks.quality.study                          # TRL in the same environment, all tasks

Each system tries the same five settings on the seeds of choice; with the best of its own it runs the seeds that are
reported (declared.json). Cells that the file has are not run again. Runs of the two systems alternate, so that a busy
minute hits both; seconds of the processor are compared, as the wall's are of a machine that others may use.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from benchmarks.cells import CellFile
from benchmarks.quality.cell import DECLARED
from benchmarks.turns import environment
from palaestra.run.machine import describe_machine

FILE = CellFile(indent=None)
SYSTEMS = ("palaestra", "trl")
RESULTS = Path(__file__).parent / "results.json"


def name_of(task: str, system: str, setting: int, seed: int) -> str:
    return f"{task}/{system}/{setting}/{seed}"


def seconds(cell: Mapping[str, Any], clock: str = "processor") -> float | None:
    """Seconds until the target; None where the run ended before it."""
    return cell["steps"][-1][clock] if cell["reached"] else None


def chosen(cells: Mapping[str, Any], task: str, system: str) -> int | None:
    """The number of a system's best setting; None while cells of choice are missing, or none reaches the target."""
    means: dict[int, float] = {}
    for i in range(len(DECLARED["settings"][task])):
        names = [name_of(task, system, i, s) for s in DECLARED["seeds of choice"]]
        if not all(n in cells for n in names):
            return None
        took = [seconds(cells[n]) for n in names]
        if all(t is not None for t in took):
            means[i] = sum(t for t in took if t is not None) / len(took)
    return min(means, key=means.__getitem__) if means else None


def missing(cells: Mapping[str, Any], tasks: list[str]) -> Iterator[tuple[str, str, int, int]]:
    """What is to be run next: cells of choice, then those that are reported, the systems in turn."""
    for task in tasks:
        for seed in DECLARED["seeds of choice"]:
            for i in range(len(DECLARED["settings"][task])):
                yield from ((task, x, i, seed) for x in SYSTEMS)
        for seed in DECLARED["seeds"]:
            for x in SYSTEMS:
                if (best := chosen(cells, task, x)) is not None:
                    yield task, x, best, seed


def run(python: str, task: str, system: str, setting: int, seed: int) -> dict[str, Any]:
    order = {"task": task, "seed": seed, **DECLARED["settings"][task][setting]}
    with tempfile.TemporaryDirectory() as folder:
        done = subprocess.run(
            [python, "-m", "benchmarks.quality.cell", system, json.dumps(order), folder],
            env=environment() | {"OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1"}, capture_output=True, text=True,
            cwd=folder,
        )  # fmt: skip
    if done.returncode:
        raise SystemExit(f"{name_of(task, system, setting, seed)} failed:\n{done.stderr[-2000:]}")
    return json.loads(done.stdout.splitlines()[-1])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=RESULTS)
    parser.add_argument("--tasks", nargs="+", default=list(DECLARED["tasks"]))
    parser.add_argument("--peer-python", default=sys.executable, help="where TRL is installed")
    given = parser.parse_args()
    results = FILE.read(given.out)
    python = {"palaestra": sys.executable, "trl": os.path.expanduser(given.peer_python)}
    results["machine"] = describe_machine("cpu")
    results["trl"] = subprocess.run(
        [python["trl"], "-c", "import trl, transformers; print(trl.__version__, transformers.__version__)"],
        capture_output=True, text=True, check=True,
    ).stdout.split()  # fmt: skip
    for task, system, setting, seed in missing(results["cells"], given.tasks):
        name = name_of(task, system, setting, seed)
        if name in results["cells"]:
            continue
        made = results["cells"][name] = run(python[system], task, system, setting, seed)
        FILE.write(given.out, results)
        print(name, made["reached"], made["steps"][-1], len(made["steps"]), flush=True)


if __name__ == "__main__":
    main()
