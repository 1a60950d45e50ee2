"""An attempt of a step under way: the tickets that were handed out for its groups, and the flight
that brings them back.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field, fields
from typing import Any, TypeAlias

from palaestra.errors import PalaestraError
from palaestra.types import Group, Key, Meter, value_class


@value_class
class Ticket:
    """Groups of one attempt that are collected together, and share forward passes with no others.

    It is a value: whoever collects it, wherever and whenever, finds the same groups, since keys,
    weights and schedules are the ticket's. So a lost one is collected again. Only one that is to
    `renew` its weights finds others, as newer ones come under it sooner or later.
    """

    key: Key  # of the attempt, the groups of one draw
    first: int  # place of its first group in the attempt; a group's key is (*key, place)
    starts: tuple[Group, ...]
    step: int  # whose weights sample and whose schedules hold
    renew: bool = False  # newer weights are taken as they come, also under its sequences

    @property
    def name(self) -> str:
        """Its own in the run."""
        return "/".join(map(str, (*self.key, self.first)))


class Flight(ABC):
    """An attempt that is collected elsewhere."""

    @property
    @abstractmethod
    def tickets(self) -> tuple[Ticket, ...]: ...

    @property
    @abstractmethod
    def over(self) -> bool:
        """Whether all of its groups are here, or it has failed."""

    @property
    @abstractmethod
    def groups(self) -> list[Group]:
        """In order, once it is over. Raises what collecting them raised."""

    @property
    @abstractmethod
    def sampled_tokens(self) -> int:
        """What it took, once it is over."""

    @abstractmethod
    async def land(self) -> list[Group]:
        """Waits for its groups, as often as it is asked."""

    def split(self) -> tuple[Flight, ...]:
        """The attempt in parts that come each for itself, in order."""
        return (self,)

    async def first_over(self, others: Sequence[Any]) -> None:
        """Waits until it is over, well or not, or one of other flights of its kind."""
        with suppress(PalaestraError):
            await self.land()


# an entry of the queue: an attempt that was collected, is under way, or is to be handed out anew
Attempt: TypeAlias = "list[Group] | Flight | tuple[Ticket, ...]"


@dataclass
class DraftCounts:
    """What drafts did in the decoding passes of an engine that takes them; see `engines.drafts`."""

    passes: int = 0  # of a sequence, summed over sequences
    tokens: int = 0  # that these gave
    drafted: int = 0  # tokens of drafts that they held
    accepted: int = 0  # of these, the ones that were drawn

    def add(self, more: DraftCounts) -> None:
        for f in fields(self):
            setattr(self, f.name, getattr(self, f.name) + getattr(more, f.name))

    def since(self, before: DraftCounts) -> DraftCounts:
        return DraftCounts(*(getattr(self, f.name) - getattr(before, f.name) for f in fields(self)))

    def metrics(self) -> dict[str, float]:
        """All 0 without drafts."""
        return {
            "drafts/drafted": self.drafted,
            "drafts/accepted": self.accepted,
            "drafts/tokens_per_pass": round(self.tokens / self.passes, 4) if self.passes else 0.0,
        }


@dataclass
class Usage:
    """What was sampled and asked in other processes, in sums over them."""

    sampled_tokens: int = 0
    engine_seconds: float = 0.0
    drafts: DraftCounts = field(default_factory=DraftCounts)
    meters: dict[str, Meter] = field(default_factory=dict)  # by name of the client
