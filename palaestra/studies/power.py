"""How small a difference a study can see, told before it runs."""

from __future__ import annotations

import math
from statistics import NormalDist

from palaestra.context import Context
from palaestra.run.evaluation import chosen_tasks

LEVEL, POWER = 0.95, 0.8


def least_difference(n: int, changed: float = 0.2) -> float:
    """The difference between two models' shares of solved problems that is seen four times out of
    five.

    (z_.975 + z_.8) sqrt(changed / n): the variance of the difference is at most the share of problems
    whose outcome differs, over n.

    Args:
        n: problems that both answered.
        changed: share of problems that one of the two solves and the other does not.
    """
    z = NormalDist().inv_cdf((1 + LEVEL) / 2) + NormalDist().inv_cdf(POWER)
    return min(1.0, z * math.sqrt(changed / n)) if n else 1.0


def tell_power(ctx: Context, n: int) -> str:
    """The sentence about it, which is also said to the person at the terminal.

    Args:
        ctx: of the program.
        n: how many problems are asked for; it is told of those that there are.
    """
    n = len(chosen_tasks(ctx.bench, n))
    points = 100 * least_difference(n)
    line = (
        f"with {n} problems a difference of {points:.0f} points between two models is seen four times out "
        "of five, if one problem in five changes its outcome"
    )
    ctx.say(line)
    return line


def least_shift(n: int, spread: float = 1.0) -> float:
    """The mean difference of a measure that is no share which is seen four times out of five.

    (z_.975 + z_.8) sd / sqrt(n), as of `least_difference`; `spread` is the sd of the differences between
    the two models from problem to problem, 1 = the answer is in units of it.

    Args:
        n: problems that both answered.
        spread: in the measure's unit.
    """
    z = NormalDist().inv_cdf((1 + LEVEL) / 2) + NormalDist().inv_cdf(POWER)
    return z * spread / math.sqrt(n) if n else math.inf


def mean_power(n: int, measure: str, of: str = "problem") -> str:
    """The sentence about a measure that is no share: how much it varies from problem to problem is not known
    before, so that is the unit.

    Args:
        n: problems, or what else there are several of.
        measure: its name.
        of: what they are, one of them.
    """
    return (
        f"with {n} {of}s a change of the mean {measure} is seen four times out of five where it is "
        f"{least_shift(n):.2f} of the standard deviation of the changes from {of} to {of}"
    )


def tell_mean_power(ctx: Context, n: int, measure: str) -> str:
    """`mean_power` of the problems that there are of `n`, which is also said to the person at the terminal."""
    line = mean_power(len(chosen_tasks(ctx.bench, n)), measure)
    ctx.say(line)
    return line
