"""Who judges the answers of a run."""

from __future__ import annotations

import copy
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar

from palaestra.abilities import HasBudget
from palaestra.context import Client, RewardFn, Source
from palaestra.errors import Fault
from palaestra.run import programs
from palaestra.run.faces.situation import RunSituation
from palaestra.types import ChatRequest, Group, Meter, Reward

if TYPE_CHECKING:
    from pydantic import BaseModel

M = TypeVar("M", bound="BaseModel")
# takes the context
Asks: TypeAlias = Callable[[Any, RewardFn, Group], Awaitable[Sequence[Reward | Fault]]]


@dataclass(kw_only=True)
class RunJudging(RunSituation):
    """The clients of a run, and whoever judges its answers."""

    clients: dict[Source, Client] = field(
        init=False, repr=False, compare=False, default_factory=dict
    )
    # of budgets: which of how many, where processes share them
    part: tuple[int, int] = field(init=False, default=(0, 1))
    # rewards in other processes; None = in this one
    ask_elsewhere: Asks | None = field(init=False, repr=False, compare=False, default=None)

    def client(self, source: Source) -> Client:
        """The run's one client of a source: its budget, its cache and its counts are the run's."""
        if source not in self.clients:
            client = self.clients[source] = source.open(self.context)
            if isinstance(client, HasBudget):
                client.take_part(
                    *self.part, lambda: self.carrier.counts.meters.get(client.name) or Meter()
                )
        return self.clients[source]

    def meters(self) -> dict[str, Meter]:
        """What was asked of each client of the run, also by other processes."""
        counts = {name: copy.deepcopy(m) for name, m in self.carrier.counts.meters.items()}
        for client in self.clients.values():
            counts.setdefault(client.name, Meter()).add(client.meter)
        return counts

    async def verdicts(self, reward: RewardFn, group: Group) -> Sequence[Reward | Fault]:
        """What a reward says of a group's episodes, in this process or where `ask_elsewhere` asks."""
        if self.ask_elsewhere is None:
            return await reward(self.context, group)
        return await self.ask_elsewhere(self, reward, group)

    def judging(self) -> AbstractContextManager[None]:
        """Charges to "reward" the time in which at least one reward is awaited, without what
        engines take meanwhile.
        """
        return self.clocks.judging()

    async def ask(self, source: Source, question: str | ChatRequest, *, seed: int = 0) -> str:
        """The reply of a language model, counted as one of "calls". Raises `Fault`."""
        return await programs.ask(self, source, question, seed=seed)

    async def ask_for(
        self,
        source: Source,
        question: str | ChatRequest,
        form: type[M],
        *,
        asks: int = 2,
        fallback: M | None = None,
    ) -> M:
        """The reply as an object of a pydantic model, see `Context.ask_for`."""
        return await programs.ask_for(self, source, question, form, asks=asks, fallback=fallback)
