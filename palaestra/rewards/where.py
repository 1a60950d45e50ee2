"""Which reward a task gets, by what its data holds."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from palaestra.abilities import ChecksGold, PutsAnswers
from palaestra.context import RewardFn
from palaestra.errors import Fault, UserError
from palaestra.rollout.collect import judge_group
from palaestra.types import Group, Reward, Task, stage

if TYPE_CHECKING:
    from palaestra.context import Context


@stage
class Where:
    """`reward` for tasks whose data has the column `field`, `other` for those without or with null;
    None = the bench's.
    """

    field: str
    reward: RewardFn
    other: RewardFn | None = None

    async def __call__(self, ctx: Context, group: Group) -> Sequence[Reward | Fault]:
        judge = self._of(group.task) or ctx.bench.reward
        if judge is None:
            raise UserError(
                f"task {group.task.id!r} has no column {self.field!r}, and nothing else rewards "
                "it; add it"
            )
        return await judge_group(ctx, judge, group)

    def put(self, task: Task) -> str | None:
        """The task's answer as a response to the reward that the task gets."""
        judge = self._of(task)
        return judge.put(task) if isinstance(judge, PutsAnswers) else str(task.answer)

    def check_gold(self, task: Task) -> None:
        """Raises UserError where the reward that the task gets cannot read its answer."""
        judge = self._of(task)
        if isinstance(judge, ChecksGold):
            judge.check_gold(task)

    def _of(self, task: Task) -> RewardFn | None:
        return self.other if task.meta.get(self.field) is None else self.reward
