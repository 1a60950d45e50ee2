"""What a method takes that is started with its name alone: `palaestra train ROW`, nothing else.

    python -m benchmarks.bare --lot 40      # 40 methods drawn by lot; without it all of them
    python -m benchmarks.bare gigpo diallm  # these, again where they were run before
    python -m benchmarks.bare --show        # the table of what is measured

Each method is a process of its own, in a folder of its own, ended at the limit. Rows are appended to
benchmarks/bare.jsonl as they end, and those of the lot are not run again. `processor` is in processor
seconds of the run with all its children, which a busy machine lengthens less than the seconds of the
wall. Of a method that was run again, the last row counts.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import resource
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from palaestra import catalogue
from palaestra.run.machine import describe_machine
from palaestra.terminal.progress import Headway

FILE = Path("benchmarks/bare.jsonl")
LIMIT = 600.0  # seconds of the wall
GOAL = 120.0  # seconds


def run_bare(name: str, limit: float) -> dict[str, Any]:
    """One method without an argument: how it ended, and seconds."""
    before, began = resource.getrusage(resource.RUSAGE_CHILDREN), time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        words = [sys.executable, "-m", "palaestra", "train", name, "--out", f"{folder}/run"]
        environment = os.environ | {"PYTHONPATH": os.getcwd()}
        process = subprocess.Popen(
            words, cwd=folder, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE,
            text=True, start_new_session=True,
        )  # fmt: skip
        code: int | None = None
        try:
            error = process.communicate(timeout=limit)[1]
            code = process.returncode
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            error = process.communicate()[1]
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    used = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return {
        "method": name,
        "exit": code,
        "seconds": round(time.monotonic() - began, 1),
        "processor": round(used, 1),
        "load": round(os.getloadavg()[0], 1),
        "error": error.strip().splitlines()[-1] if code and error.strip() else "",
    }


def read_rows() -> dict[str, dict[str, Any]]:
    rows = [json.loads(line) for line in FILE.read_text().splitlines()] if FILE.exists() else []
    return {row["method"]: row for row in rows}


def show(rows: dict[str, dict[str, Any]]) -> str:
    ended = [r for r in rows.values() if r["exit"] == 0]
    middle = statistics.median([r["processor"] for r in ended])
    over = [r for r in rows.values() if r["exit"] is None or r["processor"] > GOAL]
    over.sort(key=lambda r: -r["processor"])
    lines = [
        f"{len(rows)} methods started by name alone, {len(ended)} ended; median {middle:.0f} processor "
        f"seconds; {len(over)} above {GOAL:g}",
        *(
            f"{r['method']:<28}{r['processor']:>8.1f}{'' if r['exit'] == 0 else '  stopped'}"
            for r in over
        ),
        *(f"{r['method']:<28} exit {r['exit']}: {r['error']}" for r in rows.values() if r["exit"]),
    ]
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", help="methods; without any, all or the lot")
    parser.add_argument("--lot", type=int, help="this many methods, drawn with seed 0")
    parser.add_argument("--part", default="1/1", help="of the lot: 1/2 and 2/2 run side by side")
    parser.add_argument("--limit", type=float, default=LIMIT)
    parser.add_argument("--show", action="store_true")
    given = parser.parse_args()
    names = sorted(e.id for e in catalogue.all_entries() if e.built)
    if unknown := {*given.names} - {*names}:
        parser.error(f"no built method: {', '.join(sorted(unknown))}")
    random.Random(0).shuffle(names)
    part, parts = map(int, given.part.split("/"))
    names = (given.names or names[: given.lot])[part - 1 :: parts]
    rows = read_rows()
    for name in given.names:
        rows.pop(name, None)
    if not given.show:
        with Headway("bare") as headway:
            headway.expect(len(names), sum(n in rows for n in names))
            for name in names:
                if name not in rows:
                    rows[name] = run_bare(name, given.limit) | {
                        "machine": describe_machine("cpu")["processor"]
                    }
                    with FILE.open("a") as file:
                        file.write(json.dumps(rows[name]) + "\n")
                    headway.advance()
    print(show(rows))


if __name__ == "__main__":
    main()
