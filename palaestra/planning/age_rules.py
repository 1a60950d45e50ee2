"""What is trained on, by the rule that keeps it young: issue order, an anchored window, and dropping
what is late.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import NormalDist

from palaestra.planning.simulate import ORDERS, Costs, simulate
from palaestra.types import rng_of, value_class


@value_class
class AgeRow:
    """One rule at one lag. Without a bias `slowest_tenth` is 0.1 and `cost_ratio` 1."""

    order: str
    lag: int  # of order "drop" the age above which a group is dropped
    seconds: float  # a step
    slowest_tenth: float  # share of the trained groups that are of the drawn ones' slowest tenth
    cost_ratio: float  # mean seconds of a trained group over that of a drawn one
    dropped: float  # share
    age_max: int


def compare_age_rules(
    lags: Sequence[int] = (1, 2, 4),
    *,
    load: float = 0.7,
    groups: int = 8,
    answers: int = 8,
    sigma: float = 1.2,
    steps: int = 300,
    seed: int = 0,
) -> list[AgeRow]:
    """Every rule at every lag, on the same draws.

    Every group that may exist runs at once, so its seconds are those of its longest answer, and a
    step of the learner takes 1 s. Group n draws its answers at (seed, n) whatever the rule.

    Args:
        lags: versions that what is trained on may be old.
        load: median seconds of a group; above 1 the learner waits.
        groups: of a step.
        answers: of a group.
        sigma: of the logarithm of an answer's seconds.
        steps: of each simulation; the shares have a standard error of
            sqrt(0.09 / (groups steps)).
        seed: of the draws.
    """
    # the median of the largest of so many normals
    middle = NormalDist().inv_cdf(0.5 ** (1 / answers))

    def group(attempt: int, place: int) -> float:
        z_G = rng_of((seed, "group", attempt, place)).standard_normal(answers)
        return load * math.exp(sigma * (float(z_G.max()) - middle))

    rows: list[AgeRow] = []
    for lag in lags:
        for order in ORDERS:
            simulated = simulate(
                Costs(ticket=group, learn=1.0),
                workers=(lag + 1) * groups,
                waves=groups,
                steps=steps,
                lag=lag,
                order=order,
                depth=1,
            )
            rows.append(
                AgeRow(
                    order=order,
                    lag=lag,
                    seconds=simulated.makespan / steps,
                    slowest_tenth=simulated.slowest_tenth,
                    cost_ratio=simulated.cost_ratio,
                    dropped=simulated.dropped,
                    age_max=simulated.age_max,
                )
            )
    return rows
