"""`palaestra bench notebook`: sessions a second with the walls of the sandbox and without them, and
what many sessions leave behind.

Both sorts run the same cells in the same pool of interpreters, so that the difference is
bubblewrap, the namespaces and the filter of system calls alone. They take turns in pairs, so that
another load on the machine slows both alike.
"""

from __future__ import annotations

import asyncio
import os
import time
from pathlib import Path
from typing import Any

import numpy as np

from palaestra.errors import UserError
from palaestra.run.parts import Parts
from palaestra.services import sandbox
from palaestra.services.sandbox import bubblewrap
from palaestra.services.sandbox.agents import SessionPool

ROUNDS = 10  # pairs
TOOLS = "store = {'K': 3, 'P': 4}\ndef get(key): return store[key]\n"
CELLS = ("a = get('K')", "b = get('P')", "print(sum(i * i for i in range(20_000)))", "a + b")
# in every tenth session: a process that would go on
DAEMON = "import os, time\nif os.fork() == 0: time.sleep(999)"
MOST = 0.25  # overhead above which the claim of a cheap jail is refuted
PATIENCE = 5.0  # seconds in which what was ended may still be seen


def measure(n: int, parts: Parts) -> dict[str, Any]:
    """Sessions a second of `n` sessions of each sort, the overhead of the walls, and processes that
    are left.
    """
    refusal = sandbox.sandbox_kind().refusal()
    if refusal or sandbox.sandbox_kind().name != "bubblewrap":
        raise UserError(refusal or "isolation is off, so there is nothing to compare")
    before = all_processes()
    pools = {"jail": SessionPool(guarded=True), "open": SessionPool(guarded=False)}
    a_round = max(1, n // ROUNDS)
    parts.expect(ROUNDS)
    try:
        for pool in pools.values():
            asyncio.run(run_sessions(pool, pool.most))  # starts the interpreters
        rounds = parts.rounds("pair", ROUNDS, warm=False)
        for i in rounds:
            order = list(pools)[:: 1 if i % 2 else -1]
            rounds.put({name: time_sessions(pools[name], a_round) for name in order})
    finally:
        for pool in pools.values():
            pool.end()
    over = np.array([r["jail"] / r["open"] - 1 for r in rounds.found])
    low, median, high = np.percentile(over, (25, 50, 75)).round(3).tolist()
    return {
        "sessions": a_round * ROUNDS,
        "cells": len(CELLS),
        "at_once": pools["jail"].most,
        "per_second": {
            name: round(float(np.median([a_round / r[name] for r in rounds.found])), 1)
            for name in pools
        },
        "overhead": median,
        "overhead_quartiles": [low, high],
        "refuted": median > MOST,
        "left": left_over(before),
    }


def show(result: dict[str, Any]) -> str:
    rate, (low, high) = result["per_second"], result["overhead_quartiles"]
    return (
        f"{rate['jail']:.1f} sessions/s of {result['cells']} cells in the jail, {rate['open']:.1f} "
        f"without it, {result['at_once']} at once\n"
        f"overhead {result['overhead']:+.1%} (quartiles {low:+.1%} to {high:+.1%}); over "
        f"{MOST:.0%} would refute that it is cheap: {'refuted' if result['refuted'] else 'not refuted'}\n"
        f"{2 * result['sessions']} sessions leave {result['left']} processes"
    )


def time_sessions(pool: SessionPool, n: int) -> float:
    begin = time.perf_counter()
    asyncio.run(run_sessions(pool, n))
    return time.perf_counter() - begin


async def run_sessions(pool: SessionPool, n: int) -> None:
    """That many sessions, as many at once as the pool allows."""
    await asyncio.gather(*(run_session(pool, i % 10 == 0) for i in range(n)))


async def run_session(pool: SessionPool, daemon: bool) -> None:
    number = await pool.open(TOOLS)
    try:
        cells = (DAEMON, *CELLS) if daemon else CELLS
        ran = [await pool.run(number, code) for code in cells]
        if ran[-1].stdout != "7\n":
            raise RuntimeError(f"a session of the bench went wrong: {ran}")
    finally:
        await pool.close(number)


def all_processes() -> dict[int, int]:
    """Parents by process."""
    parents: dict[int, int] = {}
    for pid in (int(x) for x in os.listdir("/proc") if x.isdigit()):
        try:
            stat = Path(f"/proc/{pid}/stat").read_text()
        except OSError:
            continue
        parents[pid] = int(stat.rpartition(")")[2].split()[1])
    return parents


def left_over(before: dict[int, int]) -> int:
    """Processes of sandboxes that there were not before: children of this one, and orphans."""
    over = time.monotonic() + PATIENCE
    while True:
        now = all_processes()
        left = [p for p in now.keys() - before.keys() if comes_from_here(p, now)]
        if not left or time.monotonic() > over:
            return len(left)
        time.sleep(0.05)


def comes_from_here(pid: int, parents: dict[int, int]) -> bool:
    """Whether a process stands below this one, or is a sandbox's and nobody's child any more."""
    above = pid
    while above > 1 and above != os.getpid():
        above = parents.get(above, 0)
    if above == os.getpid() or parents[pid] != 1:
        return above == os.getpid()
    try:
        words = Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return False
    return b"/sandbox/__main__.py" in words or str(bubblewrap.INSIDE).encode() in words
