"""`palaestra bench busy`: a default run on a quiet machine, and beside processes that keep half and
all of its cores busy.

The three runs of a round follow one another, so that an hour of another load hits all of them.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np

from palaestra.cores import cores
from palaestra.errors import Fault
from palaestra.run.machine import format_spread, spread
from palaestra.run.parts import Parts

LOAD = "while True: pass"
QUIET = "0"  # busy processes beside the run that the others are compared with


def measure(rounds: int, parts: Parts) -> dict[str, Any]:
    """Seconds and processor seconds of each run, by the number of busy processes beside it; those
    beside some over those beside none, round by round.
    """
    parts.expect(rounds)
    taken = parts.rounds("round", rounds, warm=False)
    for _ in taken:
        taken.put({str(n): default_run(n) for n in loads()})
    each = {
        n: {k: [r[n][k] for r in taken.found] for k in ("seconds", "processor_seconds")}
        for n in map(str, loads())
    }
    return {
        "runs": each,
        "over_quiet": {
            n: {k: spread(np.array(x) / np.array(each[QUIET][k])) for k, x in seconds.items()}
            for n, seconds in each.items()
            if n != QUIET
        },
    }


def loads() -> list[int]:
    """Numbers of busy processes: none, half as many as there are cores, as many."""
    return sorted({0, max(1, cores() // 2), cores()})


def default_run(n: int) -> dict[str, float]:
    """`palaestra train` beside `n` busy processes. The processor's time is that of the run and of
    all that it started.
    """
    command = [sys.executable, "-m", "palaestra", "train", "--out"]
    with tempfile.TemporaryDirectory() as folder, busy(n):
        return timed([*command, f"{folder}/run"], "a default run")


def timed(command: Sequence[str], what: str, **given: Any) -> dict[str, float]:
    """Seconds and processor seconds of a process and of all that it started and waited for.

    Args:
        what: it is, for the message of the Fault that is raised where it fails.
        given: for `subprocess.Popen`.
    """
    with tempfile.TemporaryFile() as log:
        begin = time.perf_counter()
        run = subprocess.Popen(command, stdout=log, stderr=log, **given)
        try:
            _, status, used = os.wait4(run.pid, 0)
        except BaseException:
            run.kill()
            run.wait()
            raise
        seconds = time.perf_counter() - begin
        run.returncode = os.waitstatus_to_exitcode(status)
        if run.returncode:
            log.seek(0)
            last = log.read().decode(errors="replace").strip().splitlines()[-1:]
            raise Fault("bench", f"{what} ended with {run.returncode}: {' '.join(last)}")
    return {"seconds": seconds, "processor_seconds": used.ru_utime + used.ru_stime}


@contextmanager
def busy(n: int) -> Generator[None]:
    """Beside `n` processes that do nothing but keep a core busy."""
    started = [subprocess.Popen([sys.executable, "-c", LOAD]) for _ in range(n)]
    try:
        yield
    finally:
        for process in started:
            process.kill()
            process.wait()


def show(result: dict[str, Any]) -> str:
    lines = [f"{'busy beside it':<16}{'s':>8}{'CPU s':>8}   over quiet: time, processor time"]
    for n, each in result["runs"].items():
        wall, used = (float(np.median(x)) for x in each.values())
        ratios = result["over_quiet"].get(n)
        ratios_text = ", ".join(format_spread(r) for r in ratios.values()) if ratios else ""
        lines.append(f"{n:<16}{wall:>8.1f}{used:>8.1f}   {ratios_text}".rstrip())
    return "\n".join(lines)
