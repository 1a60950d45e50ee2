"""`palaestra bench episodes`: many episodes of a tool world at the same time, each number of them in
a process of its own.

The tool is a function that waits as a service does and fails in three calls of ten. No episode may
be lost by that: a failed call is read by the model, and the episode goes on.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from functools import partial
from pathlib import Path
from typing import Any

from palaestra.run.parts import Parts

AT_ONCE = (8, 64, 256, 1000)
GROUP = 8  # answers to a prompt
FAILS = 0.3  # share of calls
TOOL = f'''
import asyncio, random

DRAWN = random.Random(0)

async def add(a: int, b: int) -> int:
    """The sum of two numbers."""
    fails = DRAWN.random() < {FAILS}
    await asyncio.sleep(0.2)
    if fails:
        raise RuntimeError("the service is away")
    return a + b
'''


def measure(parts: Parts) -> dict[str, Any]:
    """By number of episodes at once: how many came back, those that ended by a fault, calls, the
    share of them that failed, seconds of sampling and of the step, peak of memory in MB.
    """
    parts.expect(len(AT_ONCE))
    return {"runs": [parts.keep(f"{n} at once", partial(episodes, n)) for n in AT_ONCE]}


def episodes(n: int) -> dict[str, Any]:
    """One step of `grpo` on sums with the tool, with all its episodes at once."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "service.py").write_text(TOOL)
        sizes = (f"schedule.prompts={n // GROUP}", f"collect.links.0.n={GROUP}")
        command = (
            *(sys.executable, "-m", "palaestra", "train", "grpo", "--model", "tiny-agent"),
            *("--task", "add(d=4)", "--tools", str(folder / "service.py:add"), *sizes),
            *("--slots", str(n), "--steps", "1", "--evaluate", "1", "--out", str(folder / "run")),
        )
        process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
        _, status, used = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        if process.returncode:
            raise RuntimeError(f"a run of {n} episodes ended with {process.returncode}")
        lines = (folder / "run" / "metrics.jsonl").read_text().splitlines()
    row = next(r for r in map(json.loads, lines) if "episodes" in r)
    return {
        "at_once": n,
        "episodes": row["episodes"],
        "faults": round(row.get("errors", 0.0) * row["episodes"]),
        "calls": round(row["tools/calls"] * row["episodes"]),
        "failed": round(row["tools/errors"], 3),
        "sampling_s": round(row["seconds/rollout"], 1),
        "step_s": round(row["seconds"], 1),
        "memory_mb": round(used.ru_maxrss / 1024),
    }


def show(result: dict[str, Any]) -> str:
    lines = [
        f"{'at once':>8}{'came back':>11}{'faults':>8}{'calls':>7}{'failed':>8}{'sampling s':>12}"
        f"{'episodes/s':>12}{'step s':>8}{'MB':>7}"
    ]
    for r in result["runs"]:
        rate = r["episodes"] / r["sampling_s"] if r["sampling_s"] else float("nan")
        lines.append(
            f"{r['at_once']:>8}{r['episodes']:>11}{r['faults']:>8}{r['calls']:>7}{r['failed']:>8.0%}"
            f"{r['sampling_s']:>12.1f}{rate:>12.1f}{r['step_s']:>8.1f}{r['memory_mb']:>7}"
        )
    return "\n".join(lines)
