"""Which reward a task gets, by what its data holds."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from palaestra.rollout.collect import judged
from palaestra.types import Fault, Group, Reward, RewardFn, UserError, stage

if TYPE_CHECKING:
    from palaestra.runtime.context import Context


@stage
class Where:
    """`reward` for tasks whose data has the column `field`, `other` for those without; None = the bench's."""

    field: str
    reward: RewardFn
    other: RewardFn | None = None

    async def __call__(self, ctx: Context, group: Group) -> Sequence[Reward | Fault]:
        judge = self.reward if self.field in group.task.meta else self.other or ctx.bench.reward
        if judge is None:
            raise UserError(f"task {group.task.id!r} has no column {self.field!r}, and nothing else rewards it; add it")
        return await judged(ctx, judge, group)
