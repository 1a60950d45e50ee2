"""How many processor cores there are to work with."""

from __future__ import annotations

import math
import os
from pathlib import Path

CGROUPS = Path("/sys/fs/cgroup")
OWN_GROUPS = Path("/proc/self/cgroup")


def cores() -> int:
    """Those that this process may use: by its affinity, and by the quota of its container."""
    there = (
        len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    )
    return max(1, math.floor(min(there, quota())))


def quota(groups: Path = CGROUPS, own: Path = OWN_GROUPS) -> float:
    """Cores' worth of time that the control groups of this process allow; infinite without a limit.

    The limit of every group above counts too. Inside a container the own group is often mounted
    as the root, so that its path leads nowhere.
    """
    try:
        lines = [line.split(":", 2) for line in own.read_text().splitlines()]
    except OSError:
        return math.inf
    limits = [math.inf]
    for _, kinds, path in lines:
        root = groups / kinds if kinds else groups
        if kinds and "cpu" not in kinds.split(","):
            continue
        inner = root / path.lstrip("/")
        limits += [read_quota(p) for p in (inner, *inner.parents) if p.is_relative_to(root)]
    return min(limits)


def read_quota(group: Path) -> float:
    """Of one control group, of version 2 or 1; infinite where it sets none."""
    try:
        if (group / "cpu.max").is_file():
            allowed, period = (group / "cpu.max").read_text().split()
        else:
            allowed, period = (
                (group / f"cpu.cfs_{name}_us").read_text().strip() for name in ("quota", "period")
            )
        return math.inf if allowed in ("max", "-1") else int(allowed) / int(period)
    except (OSError, ValueError):
        return math.inf
