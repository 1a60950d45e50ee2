"""How much privacy steps with noise take, by the Renyi accountant of opacus.

A step adds N(0, sigma^2 C^2 I) to a sum in which every line of the data, drawn with probability q,
has at most the norm C. Its Renyi divergence of order alpha between data sets that differ in one line
(added or removed) is known (arXiv:1908.10530), the divergences of steps add up, and

    epsilon = min over alpha of  T rdp(alpha) - (log delta + log alpha) / (alpha - 1) + log((alpha - 1) / alpha)

(arXiv:1905.09982, theorem 21). sigma is the noise multiplier, without a unit.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Sequence
from functools import cache
from typing import Any, TypeAlias

from palaestra.errors import UserError

ORDERS = (1.01, 1.05, *(1 + i / 10 for i in range(1, 100)), *range(11, 65), 80, 128, 256, 512)
Spend: TypeAlias = tuple[float, float, int]  # rate, noise, and how many steps had them
MOST_NOISE = 1e6  # a multiplier beyond which nothing could be learned


def spent_epsilon(rate: float, noise: float, steps: int, delta: float) -> float:
    """epsilon of `steps` steps; 0 without a step, infinite without noise.

    Args:
        rate: q, the probability with which a line is drawn for a step.
        noise: sigma.
    """
    return composed_epsilon([(rate, noise, steps)], delta)


def composed_epsilon(spends: Sequence[Spend], delta: float) -> float:
    """epsilon of steps that may differ in rate and noise: the divergences of each order add up."""
    spends = [(rate, noise, steps) for rate, noise, steps in spends if steps]
    if not spends:
        return 0.0
    if any(noise == 0 for _, noise, _ in spends):
        return math.inf
    rdp = [0.0] * len(ORDERS)
    for rate, noise, steps in spends:
        rdp = [a + steps * x for a, x in zip(rdp, _rdp_of_step(rate, noise), strict=True)]
    with warnings.catch_warnings():  # that the best order is the last one: a bound all the same
        warnings.simplefilter("ignore")
        epsilon, _ = _opacus().get_privacy_spent(orders=list(ORDERS), rdp=rdp, delta=delta)
    return max(0.0, float(epsilon))


def noise_for(epsilon: float, delta: float, rate: float, steps: int) -> float:
    """The least noise multiplier, but for one part in a thousand, with which `steps` steps take at
    most `epsilon`. Raises UserError where none does.
    """
    high = 1.0
    while spent_epsilon(rate, high, steps, delta) > epsilon:
        high *= 2
        if high > MOST_NOISE:
            raise UserError(
                f"epsilon={epsilon:g} at delta={delta:g} is out of reach in {steps} steps; raise it, or "
                "take more lines or fewer steps"
            )
    low = 0.0
    while high - low > 1e-3 * high:
        middle = (low + high) / 2
        if middle and spent_epsilon(rate, middle, steps, delta) <= epsilon:
            high = middle
        else:
            low = middle
    return high


def composed_noise(epsilon: float, delta: float, epochs: float) -> float:
    """The noise multiplier of basic composition over epochs, 2 sqrt(2 ln(1.25 / d)) / e with e =
    epsilon / epochs and d = delta / epochs: what arXiv:2505.08849 takes, with two the sensitivity of
    one line that is replaced.
    """
    return 2 * math.sqrt(2 * math.log(1.25 * epochs / delta)) * epochs / epsilon


@cache
def _rdp_of_step(rate: float, noise: float) -> Sequence[float]:
    """By order."""
    return tuple(
        float(x)
        for x in _opacus().compute_rdp(q=rate, noise_multiplier=noise, steps=1, orders=list(ORDERS))
    )


def _opacus() -> Any:
    try:
        from opacus.accountants.analysis import rdp
    except ImportError:
        raise UserError(
            "the privacy accountant is the package opacus: pip install 'palaestra[privacy]'"
        ) from None
    return rdp
