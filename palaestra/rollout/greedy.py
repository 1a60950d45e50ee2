"""The greedy answer to each prompt, as a baseline."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from palaestra.declared import declare
from palaestra.rollout.collect import Sample
from palaestra.types import Group, Key, stage

if TYPE_CHECKING:
    from palaestra.context import Context


@declare(facts=(("greedy", float, "1 where the answer is the greedy one, which trains nothing"),))
@stage
class Greedy:
    """Adds the greedy answer of a model, muted, with the fact `greedy`: what `AgainstGreedy`
    compares the sampled answers with. It costs one more answer a prompt, and counts among the
    rewards of a step.
    """

    model: str = "policy"

    async def __call__(self, ctx: Context, key: Key, group: Group) -> Group:
        n = len(group.episodes)
        made = await Sample(n=1, temperature=0.0, model=self.model)(ctx, key, group)
        best = (replace(e, muted=True, facts={**e.facts, "greedy": 1.0}) for e in made.episodes[n:])
        return replace(made, episodes=(*made.episodes[:n], *best))
