"""How much of a policy's probability lay on replies that could not be said."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from palaestra.types import Episode, Group, Key, stage

if TYPE_CHECKING:
    from palaestra.context import Context


@stage
class TellPrevented:
    """Adds the part "prevented" to the rewards: of an episode's turns whose replies an engine chose among the
    legal ones, the mean share of the unrestricted policy's probability that lay elsewhere; 0 without such turns.
    """

    async def __call__(self, ctx: Context | None, key: Key, group: Group) -> Group:
        return replace(group, episodes=tuple(map(self._with_part, group.episodes)))

    def _with_part(self, e: Episode) -> Episode:
        if e.reward is None:
            return e
        mass = e.facts.get("legal_mass") or ()
        prevented = sum(1 - min(1.0, m) for m in mass) / len(mass) if mass else 0.0
        return replace(
            e, reward=replace(e.reward, parts={**e.reward.parts, "prevented": prevented})
        )
