"""`palaestra bench memory`: peaks of sampling and of the update, each setting in a process of its
own.

Sampling must stay within its budget when the group grows; the update within its micro-batches.
"""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks.turns import TurnWorker
from benchmarks.work import Work
from palaestra.run.parts import Parts

GROUPS = (8, 16, 32, 64)


def measure(work: Work, steps: int, parts: Parts) -> dict[str, Any]:
    """MB: "base" before the first step, the peak of "rollout" in it, that of "update" over all
    steps.

    A process keeps what an update took and gave back, so later steps would show the update's peak
    while sampling.
    """
    grown = [replace(work, group=g) for g in GROUPS]
    bounded = [replace(w, cache_mb=64) for w in grown]
    saving = [
        replace(work, recompute=True),
        replace(work, budget=1024),
        replace(work, budget=1024, recompute=True),
    ]
    return peaks_of((*grown, *bounded, *saving), steps, parts)


def peaks_of(works: Sequence[Work], steps: int, parts: Parts) -> dict[str, Any]:
    """Each work with its peaks, under "settings"."""
    parts.expect(len(works))
    return {
        "settings": [
            asdict(w) | {"memory_mb": parts.keep(f"setting {i}", partial(peaks, w, steps))}
            for i, w in enumerate(works, 1)
        ]
    }


def peaks(work: Work, steps: int) -> dict[str, float]:
    with tempfile.TemporaryDirectory() as folder:
        worker = TurnWorker("benchmarks.own", work.json(), Path(folder))
        try:
            memory = [worker.go()["memory"] for _ in range(steps)]
        finally:
            worker.close()
    return {
        "base": memory[0]["base"],
        "rollout": memory[0]["rollout"],
        "update": max(f["update"] for f in memory),
    }


def show(result: dict[str, Any]) -> str:
    lines = [
        f"{'group':>6}{'cache MB':>10}{'budget':>8}{'recompute':>11}{'base':>8}{'rollout':>9}{'update':>8}   MB"
    ]
    for s in result["settings"]:
        m = s["memory_mb"]
        lines.append(
            f"{s['group']:>6}{s['cache_mb']:>10}{s['budget']:>8}{'yes' if s['recompute'] else 'no':>11}"
            f"{m['base']:>8.0f}{m['rollout']:>9.0f}{m['update']:>8.0f}"
        )
    return "\n".join(lines)
