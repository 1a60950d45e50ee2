"""What studies say of arms that were compared over the same seeds: the paired t test, Holm's correction, verdicts."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from typing import TypeVar

import numpy as np

from palaestra.stats import Interval, mean_interval, standard_error, t_cdf

LEVEL = 0.05
At = TypeVar("At", bound=Hashable)


def p_of(gains: Sequence[float]) -> float:
    """Two-sided p of the t test that the mean is 0; 1 where there are fewer than two values, or all are 0."""
    if len(gains) < 2:
        return 1.0
    mean, error = float(np.mean(gains)), standard_error(np.asarray(gains))
    if error == 0:
        return 1.0 if mean == 0 else 0.0
    return 2 * (1 - t_cdf(abs(mean) / error, len(gains) - 1))


def holm(p_by: Mapping[str, float], level: float = LEVEL) -> dict[str, bool]:
    """Which hypotheses Holm's step-down procedure rejects."""
    rejected, going = dict[str, bool](), True
    for i, (name, p) in enumerate(sorted(p_by.items(), key=lambda x: x[1])):
        going = going and p <= level / (len(p_by) - i)
        rejected[name] = going
    return rejected


def gains_over(one: Mapping[At, float], other: Mapping[At, float]) -> list[float]:
    """`one` less `other`, where both have a value."""
    return [x - other[at] for at, x in one.items() if at in other]


def verdicts(
    each: Mapping[str, Sequence[float]], needed: int, up: str, down: str, matters: float, unit: str
) -> dict[str, str]:
    """By arm, what its differences say: `up` or `down` after Holm's correction over all arms, no difference that
    `matters`, or not decided. While an arm has fewer than `needed` values all of them are a trial, as the correction
    is over all.
    """
    if any(len(gains) < needed for gains in each.values()):
        return {arm: f"trial: {len(gains)} of {needed} {unit}" for arm, gains in each.items()}
    sure, said = holm({arm: p_of(gains) for arm, gains in each.items()}), dict[str, str]()
    for arm, gains in each.items():
        x = mean_interval(gains)
        if sure[arm]:
            said[arm] = up if x.mean > 0 else down
        elif max(-x.low, x.high) < matters:
            said[arm] = "no difference that matters"
        else:
            said[arm] = "not decided"
    return said


def written(x: Interval, sign: str = "") -> str:
    whole = f"{x.mean:{sign}.3f}"
    return f"{whole} [{x.low:{sign}.3f}, {x.high:{sign}.3f}]" if x.n > 1 else whole


def of_values(values: Sequence[float], sign: str = "") -> str:
    """Their mean with its interval."""
    return written(mean_interval(list(values)), sign) if values else "not run"


def summed_up(
    name: str, gains: Mapping[str, Sequence[float]], said: Mapping[str, str], needed: int, unit: str
) -> str:
    """One sentence on the differences of arms to one of them, or to the start: the largest first."""
    means = {arm: sum(g) / len(g) for arm, g in gains.items() if g}
    ordered = sorted(means, key=lambda arm: -means[arm])
    if any(x.startswith("trial") for x in said.values()):
        n = min(len(gains[arm]) for arm in ordered) if ordered else 0
        told = ", ".join(f"{arm} {means[arm]:+.3f}" for arm in ordered)
        return f"Compared with {name}, a trial of {n} of {needed} {unit}: {told}."
    groups = dict[str, list[str]]()
    for arm in ordered:
        groups.setdefault(said[arm], []).append(f"{arm} {means[arm]:+.3f}")
    return (
        f"Compared with {name}: "
        + "; ".join(f"{v}: {', '.join(a)}" for v, a in groups.items())
        + "."
    )
