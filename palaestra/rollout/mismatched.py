"""Answers behind prompts that they do not belong to."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, ClassVar

from palaestra.declared import declare
from palaestra.rollout.hints import another_task
from palaestra.rollout.recorded import Recorded
from palaestra.tasks.tool_data import tools_of_task
from palaestra.types import Group, Key, Reward, rng_of, stage

if TYPE_CHECKING:
    from palaestra.context import Context


@declare(facts=(("mismatched", float, "1 where the answer belongs to another prompt"),))
@stage
class MismatchedAnswer:
    """Adds the recorded answer of another training task behind this task's prompt, with the fact
    `mismatched`: from such answers KTO estimates how far the policy is from the reference
    (arXiv:2402.01306, section 4.1). The answer measures nothing and trains nothing.
    """

    model: str = "policy"
    recorded: ClassVar[bool] = True

    async def __call__(self, ctx: Context, key: Key, group: Group) -> Group:
        task, recorded = group.task, Recorded(self.model)
        other = another_task(ctx, task, rng_of((*key, "mismatched")))
        name, text = recorded.texts(other)[0]
        tools = await tools_of_task(ctx.bench.world, task)
        made = recorded.episode(ctx, task, text, tools, column=name, whose=other)
        apart = replace(made, facts={"mismatched": 1.0}, reward=Reward(total=0.0, judged=False))
        return replace(group, episodes=(*group.episodes, apart))
