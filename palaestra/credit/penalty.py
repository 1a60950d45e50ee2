"""What is taken off a reward after it was scaled."""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from palaestra.credit.gae import sampled_kl
from palaestra.credit.table import Table, Values
from palaestra.objective.kl import KLKind
from palaestra.types import stage


@stage
class LessKL:
    """x - beta sum_t `kind`, an estimate of the KL to a frozen model on whole sequences, pi as it
    was when sampling.

    k1 is log pi(y | x) / pi_ref(y | x); for the gradients of the others see `objective.kl`. The
    learner must need what `gae.kl_needs` says. arXiv:2503.23829, eq. 3 and 6.
    """

    beta: float = 0.01
    model: str = "ref"
    kind: KLKind | None = None  # None = k1, the one whose gradient is that of the KL
    spreads: ClassVar[bool] = True

    def __call__(self, x: Values, table: Table) -> Values:
        x = table.lift(x, "episode")
        kl_N = sampled_kl(table, self.model, self.kind or "k1")
        kl_E = np.bincount(table.tokens.episode_N, kl_N, minlength=len(table.episodes))
        return Values(level="episode", x_N=x.x_N - self.beta * kl_E)


@stage
class KLToGo:
    """By token: x - beta sum_{i >= t} `kind` of token i, an estimate of the KL to a frozen model over
    the rest of the episode, pi as it was when sampling: the return of REINFORCE with a KL in every
    token's reward and the outcome at the end (REINFORCE++, arXiv:2501.03262).

    Values by token that come in stay where they are. The learner must need what `gae.kl_needs`
    says.
    """

    beta: float = 0.01
    model: str = "ref"
    kind: KLKind | None = None  # None = k1, the one whose gradient is that of the KL
    spreads: ClassVar[bool] = True

    def __call__(self, x: Values, table: Table) -> Values:
        x = table.lift(x, "token")
        kl_N, to_go_N = sampled_kl(table, self.model, self.kind or "k1"), np.zeros(len(x.x_N))
        for e in range(len(table.episodes)):
            mine = table.tokens.episode_N == e
            to_go_N[mine] = kl_N[mine][::-1].cumsum()[::-1]
        return Values(level="token", x_N=x.x_N - self.beta * to_go_N)
