"""The same questions without their tools: the arm that shows what the tools are worth."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from palaestra.context import Collect
from palaestra.types import Group, Key, stage
from palaestra.worlds.question import Question

if TYPE_CHECKING:
    from palaestra.context import Context


@stage
class Unaided:
    """Collects by `link` in the world of a single question. The held-out problems keep their tools."""

    link: Collect

    async def __call__(self, ctx: Context, key: Key, group: Group) -> Group:
        return await self.link(ctx.with_bench(replace(ctx.bench, world=Question())), key, group)
