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
