"""What is taken off a reward after it was scaled."""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from palaestra.credit.links import table_signal
from palaestra.credit.table import Table, Values
from palaestra.types import stage


@stage
class LessKL:
    """x - beta log pi(y | x) / pi_ref(y | x), the KL to a frozen model on whole sequences (k1), pi as it was when sampling.

    The learner must need (model, "logp"). arXiv:2503.23829, eq. 3 and 6.
    """

    beta: float = 0.01
    model: str = "ref"
    spreads: ClassVar[bool] = True

    def __call__(self, x: Values, table: Table) -> Values:
        at, x = table.tokens, table.lift(x, "episode")
        logp_N = np.array(
            [table.views[e][r].logp_T[p] for e, r, p in zip(at.episode_N, at.row_N, at.position_N, strict=True)]
        )
        log_ratio_E = np.bincount(
            at.episode_N, logp_N - table_signal(table, f"{self.model}_logp"), minlength=len(table.episodes)
        )
        return Values(level="episode", x_N=x.x_N - self.beta * log_ratio_E)
