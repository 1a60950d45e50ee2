"""One call for a whole batch: rewards that are cheaper together wait until nothing is sampled any
more.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Hashable, Sequence
from typing import TYPE_CHECKING, Any, TypeVar
from weakref import WeakKeyDictionary

import numpy as np

from palaestra.types import Group

if TYPE_CHECKING:
    from palaestra.context import Context

R = TypeVar("R")
Waiting = list[tuple[Group, asyncio.Future[Any]]]
WAITING: WeakKeyDictionary[asyncio.AbstractEventLoop, dict[Hashable, Waiting]] = WeakKeyDictionary()
QUIET_TURNS = 3  # turns of the loop in which nobody asks, before a batch is taken to be complete


async def judge_together(
    ctx: Context | None,
    who: Hashable,
    group: Group,
    judge: Callable[[list[Group]], Awaitable[Sequence[R]]],
) -> list[R]:
    """This group's part of one `judge(groups)`, which gives a value for every episode of all groups
    that `who` waits with.
    """
    waiting = WAITING.setdefault(asyncio.get_running_loop(), {}).setdefault(who, [])
    mine: asyncio.Future[list[R]] = asyncio.get_running_loop().create_future()
    waiting.append((group, mine))
    if len(waiting) == 1:  # the first to wait calls for all
        await _complete(ctx, waiting)
        batch = waiting[:]
        waiting.clear()
        await _judge(batch, judge)
    return await mine


async def _complete(ctx: Context | None, waiting: Waiting) -> None:
    """Returns when nothing is sampled and nobody else comes."""
    quiet = 0
    while quiet < QUIET_TURNS:
        before = len(waiting)
        await asyncio.sleep(0)
        busy = ctx is not None and ctx.sampling
        quiet = quiet + 1 if len(waiting) == before and not busy else 0


async def _judge(batch: Waiting, judge: Callable[[list[Group]], Awaitable[Sequence[Any]]]) -> None:
    try:
        rewards = list(await judge([g for g, _ in batch]))
    except BaseException as error:
        for _, future in batch[1:]:
            future.set_exception(error)
        raise
    for (group, future), start in zip(
        batch, np.cumsum([0, *(len(g.episodes) for g, _ in batch)]), strict=False
    ):
        future.set_result(rewards[start : start + len(group.episodes)])
