"""The free energy as a baseline."""

from __future__ import annotations

import numpy as np

from palaestra.credit.advantages import group_mean
from palaestra.credit.scopes import Scope, scope_keys
from palaestra.credit.table import Table, Values
from palaestra.schedule import check_bounds
from palaestra.types import stage


def soft_mean(x_N: np.ndarray, key_N: np.ndarray, tau: float) -> np.ndarray:
    """tau log mean exp(x / tau) over observations of the same key: the mean for tau -> infinity,
    the best for tau -> 0.
    """
    top_N = np.full(int(key_N.max(initial=-1)) + 1, -np.inf)
    np.maximum.at(top_N, key_N, x_N)
    return top_N[key_N] + tau * np.log(group_mean(np.exp((x_N - top_N[key_N]) / tau), key_N))


@stage
class SoftCenter:
    """x - tau log mean exp(x / tau): tau log Z of the optimum of E[x] - tau KL, from samples
    (arXiv:2501.12599, 2.3.2).
    """

    tau: float
    scope: Scope = "group"

    def __post_init__(self) -> None:
        check_bounds("SoftCenter.tau", self.tau, above=0)

    def __call__(self, x: Values, table: Table) -> Values:
        return Values(
            level=x.level,
            x_N=x.x_N - soft_mean(x.x_N, scope_keys(table, self.scope, x.level), self.tau),
        )
