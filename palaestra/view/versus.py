"""Where two runs part: settings, the step from which their rewards differ, the problems that one of
them solves.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
import pyarrow as pa

from palaestra.stats import LEVEL, mean_interval
from palaestra.store.folder import flatten_settings
from palaestra.types import SOLVED_TOTAL
from palaestra.view.reader import RunReader, pc

WINDOWS = 20  # that the common steps are cut into, at most
SOLVES = 0.5  # share of the last answers from which on a run is said to solve a problem
MOST = 500  # problems that are told


def versus(left: RunReader, right: RunReader) -> dict[str, Any]:
    """settings: [name, left, right] that differ; windows of steps with the difference of the reward
    (right - left) and its interval; parts_at: the first step of the first window whose interval
    leaves 0, where all of them together do so by chance in one of twenty runs; problems that both
    tried, with their shares of right answers at the end and where to see them.
    """
    windows = reward_windows(left, right)
    apart = next((w for w in windows if w["low"] > 0 or w["high"] < 0), None)
    problems = both_tried(left, right)
    counts = {k: sum(p["who"] == k for p in problems) for k in ("left", "right", "both", "neither")}
    problems.sort(key=lambda p: -abs((p["right"] or 0) - (p["left"] or 0)))
    return {
        "names": [left.name, right.name],
        "tables": [left.main.name, right.main.name],
        "settings": differing(left.config, right.config),
        "windows": windows,
        "parts_at": apart["from"] if apart else None,
        "counts": counts,
        "problems": problems[:MOST],
    }


def differing(a: Mapping[str, Any], b: Mapping[str, Any]) -> list[tuple[str, str, str]]:
    """Settings that are not the same, by their dotted paths; "" = not set."""
    one, other = dict(flatten_settings(a)), dict(flatten_settings(b))
    names = dict.fromkeys([*one, *other])
    return [(n, one.get(n, ""), other.get(n, "")) for n in names if one.get(n) != other.get(n)]


def reward_windows(left: RunReader, right: RunReader) -> list[dict[str, Any]]:
    """The mean over windows of common steps of the difference at each step. The intervals hold for
    all windows at once (Bonferroni).
    """
    one, other = _reward_by_step(left), _reward_by_step(right)
    common = sorted(one.keys() & other.keys())
    size = max(3, math.ceil(len(common) / WINDOWS))
    spans = [common[i : i + size] for i in range(0, len(common), size)]
    spans = [s for s in spans if len(s) > 2]
    level = 1 - (1 - LEVEL) / max(1, len(spans))
    windows: list[dict[str, Any]] = []
    for span in spans:
        gaps = [other[s] - one[s] for s in span]
        still = all(g == gaps[0] for g in gaps)
        d = mean_interval(gaps, level)
        # equal gaps have no spread to judge by: they say nothing of other draws
        low, high = (min(0.0, gaps[0]), max(0.0, gaps[0])) if still else (d.low, d.high)
        windows.append({"from": span[0], "to": span[-1], "mean": d.mean, "low": low, "high": high})
    return windows


def _reward_by_step(run: RunReader) -> dict[int, float]:
    return {
        int(r["step"]): float(r["reward"])
        for r in run.metrics
        if isinstance(r.get("reward"), int | float) and math.isfinite(r["reward"]) and "step" in r
    }


def both_tried(left: RunReader, right: RunReader) -> list[dict[str, Any]]:
    one, other = shares_at_end(left), shares_at_end(right)
    shared_tasks: list[dict[str, Any]] = []
    for task in one.keys() & other.keys():
        (a, at), (b, there) = one[task], other[task]
        solves = a >= SOLVES, b >= SOLVES
        who = {(True, True): "both", (True, False): "left", (False, True): "right"}.get(
            solves, "neither"
        )
        shared_tasks.append(
            {"task_id": task, "left": a, "right": b, "who": who, "left_at": at, "right_at": there}
        )
    return sorted(shared_tasks, key=lambda p: p["task_id"])


def shares_at_end(run: RunReader) -> dict[str, tuple[float, list[int]]]:
    """By problem: the share of right answers in the last group that tried it, and step and number of
    that group.
    """
    index = run.main.index
    rows = np.flatnonzero(np.asarray(pc.is_valid(index["reward"])))
    if not len(rows):
        return {}
    picked = index.take(pa.array(rows))
    step_E, group_E = picked["step"].to_numpy(), picked["group"].to_numpy()
    right_E = np.where(
        np.asarray(pc.is_valid(picked["solved"])),
        np.asarray(pc.fill_null(picked["solved"], False)),
        picked["reward"].to_numpy() >= SOLVED_TOTAL,
    )
    coded = picked["task_id"].combine_chunks()
    code_E, names = coded.indices.to_numpy(), coded.dictionary.to_pylist()
    last_P = np.full(len(names), -1)
    np.maximum.at(last_P, code_E, np.arange(len(code_E)))  # rows are in the order of the steps
    of = last_P[code_E]
    late_E = (step_E == step_E[of]) & (group_E == group_E[of])
    n_P = np.bincount(code_E[late_E], minlength=len(names))
    right_P = np.bincount(code_E[late_E & right_E], minlength=len(names))
    return {
        name: (float(right_P[i] / n_P[i]), [int(step_E[last_P[i]]), int(group_E[last_P[i]])])
        for i, name in enumerate(names)
        if n_P[i]
    }
