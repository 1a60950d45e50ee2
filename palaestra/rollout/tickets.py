"""Tickets in this process: how an attempt is cut, and how a ticket is collected."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import TYPE_CHECKING

from palaestra.attempts import Ticket, Usage
from palaestra.context import Collects
from palaestra.types import Group, Key, Metrics

if TYPE_CHECKING:
    from palaestra.context import Context


@dataclass(frozen=True)
class InProcess:
    """The carrier of one process: a ticket is collected as soon as it is submitted, one after the
    other.

    More `waves` than one cost time and change nothing of an attempt of single turns; they give the
    numbers that as many tickets give elsewhere, also of several turns, whose log-probs depend in
    their last bits on what an engine remembers.
    """

    waves: int = 1
    counts: Usage = field(default_factory=Usage)  # of others: none

    async def submit(
        self, recipe: Collects, ctx: Context, tickets: tuple[Ticket, ...]
    ) -> list[Group]:
        return [group for ticket in tickets for group in await collect(recipe, ctx, ticket)]

    def numbers(self) -> Metrics:
        return {}

    def close(self) -> None:
        """Nothing is open."""


def cut(
    key: Key, starts: Sequence[Group], waves: int, step: int, renew: bool = False
) -> tuple[Ticket, ...]:
    """An attempt as at most `waves` tickets, in order, whose sizes differ by one at most."""
    n = max(1, min(waves, len(starts)))
    size, more = divmod(len(starts), n)
    firsts = [i * size + min(i, more) for i in range(n + 1)]
    return tuple(
        Ticket(key=key, first=a, starts=tuple(starts[a:b]), step=step, renew=renew)
        for a, b in pairwise(firsts)
    )


async def collect(
    recipe: Collects, ctx: Context, ticket: Ticket, version: int | None = None
) -> list[Group]:
    """The groups of a ticket, each row under a key of its own. `version` is that of the weights;
    None = the ticket's step.
    """
    recipe = ctx.at(recipe, ticket.step, version)
    keys = [(*ticket.key, ticket.first + i) for i in range(len(ticket.starts))]
    attempts = (recipe.collect(ctx, k, group) for k, group in zip(keys, ticket.starts, strict=True))
    groups = await asyncio.gather(*attempts)
    return [with_keys(group, k) for k, group in zip(keys, groups, strict=True)]


def with_keys(group: Group, key: Key) -> Group:
    """The group, each row under a key of its own in the run; what came with keys keeps them."""
    episodes = tuple(
        replace(
            e,
            rows=tuple(
                row if row.key else replace(row, key=(*key, i, n)) for n, row in enumerate(e.rows)
            ),
        )
        for i, e in enumerate(group.episodes)
    )
    return replace(group, episodes=episodes)
