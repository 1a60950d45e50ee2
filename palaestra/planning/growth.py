"""How the cost of a step grows, as exponents a of seconds ~ x^a: on paper by `sizing`, in simulated
processes by `simulate`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from palaestra import stats
from palaestra.planning.model_sizes import ModelSize, size_named
from palaestra.planning.sizing import GPUS, Work, ways
from palaestra.types import value_class

PAPER = Work(prompts=128, group=16, prompt_tokens=256, answer_tokens=2048, max_tokens=8192)
LAGGED = "separate, lag 1"


@value_class
class PowerLaw:
    """seconds ~ x^exponent, by least squares of the logarithms, with the t interval of the slope over
    the points: how far these are from a straight line, be it by noise or by a bend. None below three points.
    """

    exponent: float
    low: float | None
    high: float | None

    def __str__(self) -> str:
        if self.low is None:
            return f"{self.exponent:.2f}"
        return f"{self.exponent:.2f} ({self.low:.2f} to {self.high:.2f})"


def fit_power(x: Sequence[float], seconds: Sequence[float], level: float = 0.95) -> PowerLaw:
    """The exponent and its interval."""
    u, v = np.log(np.asarray(x, float)), np.log(np.asarray(seconds, float))
    slope, start = np.polyfit(u, v, 1)
    free = len(u) - 2
    if free < 1:
        return PowerLaw(exponent=float(slope), low=None, high=None)
    residual = v - (slope * u + start)
    error = np.sqrt((residual**2).sum() / free / ((u - u.mean()) ** 2).sum())
    half = stats.t_quantile((1 + level) / 2, free) * float(error)
    return PowerLaw(exponent=float(slope), low=float(slope) - half, high=float(slope) + half)


def paper_series(gpu: str = "h100") -> dict[str, list[tuple[float, float]]]:
    """What is grown: its values, and seconds of a step at lag 1."""
    seven, seventy = size_named("7b"), size_named("70b")

    def step(size: ModelSize, gpus: int, work: Work) -> float:
        rows = ways(size, GPUS[gpu], gpus, work)
        return next(w.step for w in rows if w.name == LAGGED)

    models = [size_named(x) for x in ("0.5b", "1.5b", "3b", "7b", "14b", "32b", "70b")]
    return {
        "prompts (7B, 8 GPUs)": [
            (n, step(seven, 8, replace(PAPER, prompts=n))) for n in (8, 32, 128, 512)
        ],
        "answers to a prompt (7B, 8 GPUs)": [
            (n, step(seven, 8, replace(PAPER, group=n))) for n in (4, 8, 16, 32, 64)
        ],
        "tokens of an answer (7B, 8 GPUs)": [
            (n, step(seven, 8, replace(PAPER, answer_tokens=n, max_tokens=4 * n)))
            for n in (512, 2048, 8192, 16384)
        ],
        "parameters (64 GPUs)": [(m.parameters, step(m, 64, PAPER)) for m in models],
        "GPUs (7B)": [(n, step(seven, n, PAPER)) for n in (8, 16, 32, 64, 128)],
        "GPUs (70B)": [(n, step(seventy, n, PAPER)) for n in (32, 64, 128, 256)],
    }


def simulated_series(
    workers: Sequence[int] = (1, 2, 4, 8, 16), seeds: Sequence[int] = (0, 1, 2, 3, 4)
) -> dict[str, list[tuple[float, float]]]:
    """Workers, and seconds of a step that the simulator gives for the costs of docs/plan.md with 16
    tickets a step; every seed is a point.
    """
    from palaestra.planning.simulate import Costs, LogNormal, simulate

    costs = Costs(ticket=LogNormal(median=1.2, sigma=0.8), learn=0.9, publish=0.01, load=0.005)
    return {
        f"rollout workers, lag {lag}": [
            (n, simulate(costs, workers=n, waves=16, steps=50, lag=lag, seed=seed).makespan / 50)
            for n in workers
            for seed in seeds
        ]
        for lag in (0, 1)
    }


def growth_table(series: dict[str, list[tuple[float, float]]]) -> list[list[str]]:
    """A line for each: name, exponent with interval, the points (means where several share a value)."""
    rows = list[list[str]]()
    for name, points in series.items():
        x, seconds = zip(*points, strict=True)
        points_text = ", ".join(
            f"{n:.3g}: {np.mean([s for m, s in points if m == n]):.3g} s" for n in dict.fromkeys(x)
        )
        rows.append([name, str(fit_power(x, seconds)), points_text])
    return rows
