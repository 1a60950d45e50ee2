"""The sandbox's rates beside a bare subprocess, and what many runs leave behind.

The sorts take turns in short rounds, so that another load on the machine slows all of them alike. A ratio is the median over
rounds; the quartiles say how much it moves.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np

from palaestra.services import sandbox
from palaestra.types import UserError

PROGRAM = "print(sum(range(10)))\n"
ROUNDS = 10
BUSY = 1.0  # seconds that a busy loop may run


def run(arguments: argparse.Namespace) -> dict[str, Any]:
    refusal = sandbox.kind().refusal()
    if refusal:
        raise UserError(refusal)
    before = everyone()
    threads = len(os.sched_getaffinity(0))
    found = {"kind": sandbox.kind().name, "threads": threads, **rates(arguments.n, threads), **busy()}
    if arguments.orphans:
        found |= orphans(arguments.orphans, threads, before)
    return found


def rates(n: int, threads: int) -> dict[str, Any]:
    """Runs a second of each sort, and its ratio to the bare subprocess."""
    with tempfile.TemporaryDirectory() as folder, ThreadPoolExecutor(threads) as pool:
        file = Path(folder) / "program.py"
        file.write_text(PROGRAM)
        sorts: dict[str, Callable[[int], Any]] = {
            "bare": lambda _: subprocess.run([sys.executable, str(file)], capture_output=True, check=True),
            "cold": lambda _: proper(sandbox.run(PROGRAM, fresh=True)),
            "warm": lambda _: proper(sandbox.run(PROGRAM)),
        }
        list(pool.map(sorts["warm"], range(2 * threads)))  # starts the workers
        a_round = max(1, n // ROUNDS)
        seconds: dict[str, list[float]] = {name: [] for name in sorts}
        for _ in range(ROUNDS):
            for name, do in sorts.items():
                seconds[name].append(timed(pool, do, a_round))
    rate = {name: a_round / np.array(s) for name, s in seconds.items()}
    quartiles = {name: np.percentile(rate[name] / rate["bare"], (25, 50, 75)).round(2) for name in ("cold", "warm")}
    return {
        "runs": a_round * ROUNDS,
        "per_second": {name: round(float(np.median(r)), 1) for name, r in rate.items()},
        "ratio_to_bare": {name: float(q[1]) for name, q in quartiles.items()},
        "ratio_quartiles": {name: [float(q[0]), float(q[2])] for name, q in quartiles.items()},
    }


def timed(pool: ThreadPoolExecutor, do: Callable[[int], Any], n: int) -> float:
    begin = time.perf_counter()
    list(pool.map(do, range(n)))
    return time.perf_counter() - begin


def proper(ran: sandbox.Ran) -> None:
    if ran.stdout != "45\n":
        raise RuntimeError(f"a run of the bench went wrong: {ran}")


def busy() -> dict[str, Any]:
    """How long a busy loop outlives its limit."""
    begin = time.perf_counter()
    ran = sandbox.run("while True: pass", limits=sandbox.Limits(seconds=BUSY))
    return {"busy_loop": {"limit": BUSY, "status": ran.status, "seconds": round(time.perf_counter() - begin, 3)}}


def orphans(n: int, threads: int, before: set[int]) -> dict[str, Any]:
    """Runs that leave daemons behind, in every second one; then counts processes beyond the idle workers'."""
    leave = "import os\nif os.fork() == 0:\n    os.setsid()\n    os.fork()\n    while True: pass\nprint(45)"
    begin = time.perf_counter()
    with ThreadPoolExecutor(threads) as pool:
        list(pool.map(lambda i: proper(sandbox.run(leave if i % 2 else "print(45)")), range(n)))
    seconds = time.perf_counter() - begin
    sandbox.kind().close()
    time.sleep(0.5)
    left = {p for p in everyone() - before if descends(p, os.getpid())}
    return {"orphans": {"runs": n, "seconds": round(seconds, 1), "left": len(left)}}


def everyone() -> set[int]:
    return {int(x) for x in os.listdir("/proc") if x.isdigit()}


def descends(pid: int, from_: int) -> bool:
    """Whether a process comes from this one, or was left to the reaper by one that ran the sandbox's interpreter."""
    try:
        words = Path(f"/proc/{pid}/cmdline").read_bytes()
        parent = int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
    except OSError:
        return False
    return b"/sandbox/__main__.py" in words or parent == from_
