"""The advantage of pass@k, from one group of n samples and without drawing subsets
(arXiv:2508.10751).
"""

from __future__ import annotations

from math import comb

import numpy as np

from palaestra.credit.table import Table, Values
from palaestra.schedule import check_bounds
from palaestra.types import stage


def pass_at_k_advantages(n: int, hits: int, k: int, eps: float = 1e-6) -> tuple[float, float]:
    """(of a hit, of a miss), for the reward "one of k is right" over all k-subsets of n samples.

        rho = 1 - C(n - c, k) / C(n, k),  sigma = sqrt(rho (1 - rho))
        hit: (1 - rho) / (sigma + eps),   miss: (1 - rho - C(n - c - 1, k - 1) / C(n - 1, k - 1)) / (sigma + eps)

    0 and 0 where every subset is right (n - c < k), none is (c = 0), or there are fewer than k
    samples.
    """
    if hits == 0 or n - hits < k:
        return 0.0, 0.0
    rho = 1 - comb(n - hits, k) / comb(n, k)
    sigma = (rho * (1 - rho)) ** 0.5 + eps
    return (1 - rho) / sigma, (1 - rho - comb(n - hits - 1, k - 1) / comb(n - 1, k - 1)) / sigma


@stage
class PassAtK:
    """The advantage of pass@k of each group. A hit is an episode whose reward reaches `right`; what
    came in is replaced.
    """

    k: int = 4
    right: float = 1.0

    def __post_init__(self) -> None:
        check_bounds("PassAtK.k", self.k, least=1)

    def __call__(self, x: Values, table: Table) -> Values:
        hit_E, out_E = table.reward_E >= self.right - 1e-9, np.zeros(len(table.episodes))
        for g in np.unique(table.group_E):
            mine = table.group_E == g
            hit, miss = pass_at_k_advantages(int(mine.sum()), int(hit_E[mine].sum()), self.k)
            out_E[mine] = np.where(hit_E[mine], hit, miss)
        return Values(level="episode", x_N=out_E)
