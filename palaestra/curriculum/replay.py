"""What was sampled before and is trained on again. The age law holds: `Schedule.max_age` bounds
what a buffer gives.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from palaestra.types import Episode, Group, State, Task, rng_of, stage

if TYPE_CHECKING:
    from palaestra.context import Situation


@stage
class Replay:
    """Batches of `size` prompts with `samples` episodes each, from all that is in the buffer (TBA,
    arXiv:2503.18929).

    Every place of the batch goes, with probability `recent`, to the newest prompt not yet taken and
    its newest episodes; else to any prompt of the buffer and to episodes drawn without replacement
    with p ~ exp(priority * reward). A prompt that comes again adds to what is known of it. Episodes
    of any policy version mix; losses that use this must be valid off-policy. `fill` episodes are
    collected before the first batch.

    The buffer is a list of groups in the pool's state, newest last, so that checkpoints hold it and
    the age law reaches it.
    """

    size: int = 16
    samples: int = 8
    recent: float = 0.95
    priority: float = 0.0  # inverse temperature, 1 / reward; 0 = uniform
    capacity: int = 100  # episodes a prompt
    prompts: int = 512
    fill: int = 0  # episodes

    async def __call__(
        self, ctx: Situation, groups: list[Group], state: State
    ) -> tuple[list[Group] | None, list[Group], State]:
        buffer = trim_buffer([*state.get("buffer", []), *groups], self.prompts, self.capacity)
        if sum(len(g.episodes) for g in buffer) < max(self.fill, 1):
            return None, [], {"buffer": buffer}
        rng, known = rng_of((ctx.seed, "replay", ctx.step)), group_by_prompt(buffer)
        left, ready = list(known)[::-1], list[Group]()  # newest first
        while left and len(ready) < self.size:
            newest = rng.random() < self.recent
            name = left.pop(0 if newest else int(rng.integers(len(left))))
            task, episodes = known[name]
            take = (
                episodes[-self.samples :]
                if newest
                else draw_by_priority(episodes, self.samples, self.priority, rng)
            )
            ready.append(Group(task=task, episodes=tuple(take)))
        return ready, [], {"buffer": buffer}


def group_by_prompt(buffer: Sequence[Group]) -> dict[str, tuple[Task, list[Episode]]]:
    """Episodes of each task, oldest first; tasks in the order of their newest episode."""
    by_prompt: dict[str, tuple[Task, list[Episode]]] = {}
    for group in buffer:
        _, before = by_prompt.pop(group.task.id, (group.task, []))
        by_prompt[group.task.id] = (group.task, [*before, *group.episodes])
    return by_prompt


def draw_by_priority(
    episodes: Sequence[Episode], n: int, priority: float, rng: np.random.Generator
) -> list[Episode]:
    """Up to `n` distinct episodes, drawn one after the other with p ~ exp(priority * reward)
    (Gumbel top-n).
    """
    score = priority * np.array([e.total for e in episodes]) + rng.gumbel(size=len(episodes))
    return [episodes[i] for i in np.argsort(-score, kind="stable")[:n]]


def trim_buffer(buffer: Sequence[Group], prompts: int, capacity: int) -> list[Group]:
    """The newest episodes of the newest prompts, without errors, in the order they came."""
    kept: list[Group] = []
    count: dict[str, int] = {}
    for group in reversed(buffer):
        if group.task.id not in count and len(count) == prompts:
            continue
        room = capacity - count.get(group.task.id, 0)
        newest = group.valid[-room:] if room > 0 else ()
        if newest:
            count[group.task.id] = count.get(group.task.id, 0) + len(newest)
            kept.append(replace(group, episodes=newest))
    return kept[::-1]
