"""`palaestra bench sandbox`: its rates beside a bare subprocess, and what many runs leave behind.

The sorts take turns in short rounds, so that another load on the machine slows all of them alike. A
ratio is the median over rounds; the quartiles say how much it moves.
"""

from __future__ import annotations

import math
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from palaestra.cores import cores
from palaestra.errors import UserError
from palaestra.run.parts import Parts
from palaestra.services import sandbox

PROGRAM = "print(sum(range(10)))\n"
ROUNDS = 10
ORPHANS = 1000  # runs of a part
BUSY_SECONDS = 1.0  # seconds that a busy loop may run


def measure(n: int, orphaned: int, parts: Parts) -> dict[str, Any]:
    """Runs a second of `n` runs of each sort, and what `orphaned` runs leave behind."""
    refusal = sandbox.sandbox_kind().refusal()
    if refusal:
        raise UserError(refusal)
    threads = cores()
    parts.expect(ROUNDS + 1 + math.ceil(orphaned / ORPHANS))
    result = {
        "kind": sandbox.sandbox_kind().name,
        "threads": threads,
        **rates(n, threads, parts),
        **parts.keep("busy loop", time_busy_loop),
    }
    if orphaned:
        result |= orphans(orphaned, threads, parts)
    return result


def show(result: dict[str, Any]) -> str:
    lines = []
    for name, rate in result["per_second"].items():
        ratio, (low, high) = (
            result["ratio_to_bare"].get(name, 1.0),
            result["ratio_quartiles"].get(name, (1.0, 1.0)),
        )
        lines.append(
            f"{name:<6}{rate:>8.1f} runs/s   {ratio:.2f} of a bare subprocess (quartiles {low:.2f} "
            f"to {high:.2f})"
        )
    busy = result["busy_loop"]
    lines.append(
        f"a busy loop with {busy['limit']:g} s ends as {busy['status']} after "
        f"{busy['seconds']:.2f} s"
    )
    if "orphans" in result:
        lines.append(
            f"{result['orphans']['runs']} runs leave {result['orphans']['left']} processes"
        )
    return "\n".join(lines)


def rates(n: int, threads: int, parts: Parts) -> dict[str, Any]:
    """Runs a second of each sort, and its ratio to the bare subprocess."""
    with tempfile.TemporaryDirectory() as folder, ThreadPoolExecutor(threads) as pool:
        file = Path(folder) / "program.py"
        file.write_text(PROGRAM)
        sorts: dict[str, Callable[[int], Any]] = {
            "bare": lambda _: subprocess.run(
                [sys.executable, str(file)], capture_output=True, check=True
            ),
            "cold": lambda _: check_run(sandbox.run_program(PROGRAM, fresh=True)),
            "warm": lambda _: check_run(sandbox.run_program(PROGRAM)),
        }
        list(pool.map(sorts["warm"], range(2 * threads)))  # starts the workers
        a_round, rounds = max(1, n // ROUNDS), parts.rounds("round", ROUNDS, warm=False)
        for _ in rounds:
            rounds.put({name: time_runs(pool, do, a_round) for name, do in sorts.items()})
    rate = {name: a_round / np.array([r[name] for r in rounds.found]) for name in sorts}
    quartiles = {
        name: np.percentile(rate[name] / rate["bare"], (25, 50, 75)).round(2)
        for name in ("cold", "warm")
    }
    return {
        "runs": a_round * ROUNDS,
        "per_second": {name: round(float(np.median(r)), 1) for name, r in rate.items()},
        "ratio_to_bare": {name: float(q[1]) for name, q in quartiles.items()},
        "ratio_quartiles": {name: [float(q[0]), float(q[2])] for name, q in quartiles.items()},
    }


def time_runs(pool: ThreadPoolExecutor, do: Callable[[int], Any], n: int) -> float:
    begin = time.perf_counter()
    list(pool.map(do, range(n)))
    return time.perf_counter() - begin


def check_run(ran: sandbox.Ran) -> None:
    if ran.stdout != "45\n":
        raise RuntimeError(f"a run of the bench went wrong: {ran}")


def time_busy_loop() -> dict[str, Any]:
    """How long a busy loop outlives its limit."""
    begin = time.perf_counter()
    ran = sandbox.run_program("while True: pass", limits=sandbox.Limits(seconds=BUSY_SECONDS))
    return {
        "busy_loop": {
            "limit": BUSY_SECONDS,
            "status": ran.status,
            "seconds": round(time.perf_counter() - begin, 3),
        }
    }


def orphans(n: int, threads: int, parts: Parts) -> dict[str, Any]:
    """Runs that leave daemons behind, in every second one, and processes that are left."""
    seconds_by_count = [
        parts.keep(f"orphans from {i}", partial(leave_orphans, min(ORPHANS, n - i), threads))
        for i in range(0, n, ORPHANS)
    ]
    seconds = round(sum(f["seconds"] for f in seconds_by_count), 1)
    return {
        "orphans": {"runs": n, "seconds": seconds, "left": sum(f["left"] for f in seconds_by_count)}
    }


def leave_orphans(n: int, threads: int) -> dict[str, float]:
    """Some such runs; then counts processes that there were not before."""
    sandbox.sandbox_kind().close()
    before = all_processes()
    leave = (
        "import os\nif os.fork() == 0:\n    os.setsid()\n    os.fork()\n    while True: "
        "pass\nprint(45)"
    )
    begin = time.perf_counter()
    with ThreadPoolExecutor(threads) as pool:
        list(
            pool.map(
                lambda i: check_run(sandbox.run_program(leave if i % 2 else "print(45)")), range(n)
            )
        )
    seconds = time.perf_counter() - begin
    sandbox.sandbox_kind().close()
    time.sleep(0.5)
    left = {p for p in all_processes() - before if descends(p, os.getpid())}
    return {"seconds": seconds, "left": len(left)}


def all_processes() -> set[int]:
    return {int(x) for x in os.listdir("/proc") if x.isdigit()}


def descends(pid: int, from_: int) -> bool:
    """Whether a process comes from this one, or was left to the reaper by one that ran the
    sandbox's interpreter.
    """
    try:
        words = Path(f"/proc/{pid}/cmdline").read_bytes()
        parent = int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
    except OSError:
        return False
    return b"/sandbox/__main__.py" in words or parent == from_
