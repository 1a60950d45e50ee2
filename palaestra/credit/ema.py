"""A baseline that remembers: the running mean of the rewards of a role, from step to step.

    A = R - b[role],    b[role] <- decay b[role] + (1 - decay) R,    b = 0 at first

Rewards of a batch count one after the other, in the order of their tasks' ids, so that the same
batch gives the same credit in whatever order it arrived. The mean is part of the state of the
credit, and so of checkpoints.
"""

from __future__ import annotations

from typing import ClassVar, Literal, TypeAlias

import numpy as np

from palaestra.credit.scopes import agent
from palaestra.credit.table import Table, Values
from palaestra.errors import UserError
from palaestra.schedule import check_bounds
from palaestra.types import stage

Role: TypeAlias = Literal["batch", "domain", "seat", "prompt"]
STATE = "running means"


@stage
class Ema:
    """x - an exponential moving average of x, by role (SPIRAL's role-conditioned baseline).

    Args:
        decay: of the average; 0.95 remembers about 20 episodes.
        role: whose average. "seat": of each seat in each domain of tasks, so in each game;
            "domain": of a domain; "prompt": of tasks with the same last message; "batch": one of all.
        read_first: the average is read before x is added to it; else A is `decay` times as large.

    An episode in which the seat is not trained, as a rival has it, does not count.
    """

    decay: float = 0.95
    role: Role = "seat"
    read_first: bool = True
    equal: ClassVar[bool] = True  # a group of equal rewards differs from the average

    def __post_init__(self) -> None:
        check_bounds("Ema.decay", self.decay, least=0, most=1)

    def __call__(self, x: Values, table: Table) -> Values:
        if x.level != "episode":
            raise UserError(
                f"Ema averages what episodes earn, not values by {x.level}; put it first"
            )
        mean = dict(table.state.get(STATE, {}))
        roles = [self._role(table, e) for e in range(len(x.x_N))]
        ids = [table.group(e).task.id for e in range(len(x.x_N))]
        left_N = np.zeros(len(x.x_N))
        for e in sorted(np.flatnonzero(table.lengths_E).tolist(), key=lambda e: (ids[e], e)):
            before, r = mean.get(roles[e], 0.0), float(x.x_N[e])
            mean[roles[e]] = self.decay * before + (1 - self.decay) * r
            left_N[e] = r - (before if self.read_first else mean[roles[e]])
        table.remember(STATE, mean)
        return Values(level="episode", x_N=left_N)

    def _role(self, table: Table, episode: int) -> str:
        if self.role == "batch":
            return ""
        if self.role == "prompt":
            prompt = table.group(episode).task.prompt
            return prompt[-1].content if prompt else ""
        domain = table.group(episode).task.domain
        return domain if self.role == "domain" else f"{domain}/{agent(table, episode)[1]}"
