"""`palaestra bench trl`: TRL's GRPOTrainer and Palaestra on the same work, step about step, on the
same machine.

Both run in processes of their own that wait for each other, so that a noisy minute hits both.
Ratios are of one pair of steps; their median and spread count. Answers are each system's own
samples, so tokens are reported beside the seconds.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from benchmarks.turns import interleave
from benchmarks.work import Work
from palaestra.run.machine import spread
from palaestra.run.parts import Parts

PHASES = ("rollout", "forward", "backward", "seconds")
MODULES = {"palaestra": "benchmarks.own", "trl": "benchmarks.peer"}


def measure(work: Work, pairs: int, parts: Parts) -> dict[str, Any]:
    """Seconds of every step of both, ratios TRL / Palaestra by phase, memory peaks in MB."""
    parts.expect(pairs)
    workers = {name: (module, work) for name, module in MODULES.items()}
    timings = interleave(workers, parts.rounds("pair", pairs))
    ratios = {p: phase_ratios(timings["trl"], timings["palaestra"], p) for p in PHASES}
    tokens = {n: [s["tokens"] for s in steps] for n, steps in timings.items()}
    per_token = (
        np.array(ratios["seconds"]["each"])
        * np.array(tokens["palaestra"])
        / np.array(tokens["trl"])
    )
    peaks = {n: memory_peaks(steps) for n, steps in timings.items()}
    return {
        "steps": timings,
        "ratios": ratios,
        "ratio_per_token": spread(per_token),
        "ratio_processor": phase_ratios(timings["trl"], timings["palaestra"], "processor"),
        "memory_mb": peaks,
        "update_memory_ratio": peaks["palaestra"]["update"] / peaks["trl"]["update"],
        "update_memory_ratio_above_weights": peaks["palaestra"]["update_above_base"]
        / peaks["trl"]["update_above_base"],
    }


def phase_ratios(
    over: list[dict[str, Any]], under: list[dict[str, Any]], phase: str
) -> dict[str, Any]:
    """Seconds of a phase in one worker over those in another, pair by pair."""
    return spread(np.array([a[phase] / b[phase] for a, b in zip(over, under, strict=True)]))


def memory_peaks(steps: list[dict[str, Any]]) -> dict[str, float]:
    """MB over a worker's steps, and the update's above what is held when a step begins."""
    base = max(s["memory"]["base"] for s in steps)
    update = max(s["memory"].get("update", base) for s in steps)
    rollout = max(s["memory"].get("rollout", base) for s in steps)
    return {"base": base, "update": update, "rollout": rollout, "update_above_base": update - base}


def show(result: dict[str, Any]) -> str:
    lines = [
        f"{'s a step':<10}{'palaestra':>10}{'TRL':>10}   TRL / Palaestra (lowest to highest of the "
        "pairs)"
    ]
    for p in PHASES:
        own, peer = (
            float(np.median([s[p] for s in result["steps"][n]])) for n in ("palaestra", "trl")
        )
        r, name = result["ratios"][p], "step" if p == "seconds" else p
        lines.append(
            f"{name:<10}{own:>10.3f}{peer:>10.3f}   {r['median']:.2f} ({r['low']:.2f} to "
            f"{r['high']:.2f})"
        )
    own, peer = (
        float(np.median([s["tokens"] for s in result["steps"][n]])) for n in ("palaestra", "trl")
    )
    r = result["ratio_per_token"]
    lines.append(
        f"{'tokens':<10}{own:>10.0f}{peer:>10.0f}   by token {r['median']:.2f} ({r['low']:.2f} to "
        f"{r['high']:.2f})"
    )
    r = result["ratio_processor"]
    lines.append(f"processor seconds {r['median']:.2f} ({r['low']:.2f} to {r['high']:.2f})")
    m = result["memory_mb"]
    lines.append(
        f"peak of the update {m['palaestra']['update']:.0f} and {m['trl']['update']:.0f} MB; "
        f"above weights and optimiser {m['palaestra']['update_above_base']:.0f} and "
        f"{m['trl']['update_above_base']:.0f} MB"
    )
    return "\n".join(lines)
