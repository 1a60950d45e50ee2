"""Groups with rollouts that span several steps."""

from __future__ import annotations

from typing import TYPE_CHECKING

from palaestra.types import Group, State, stage

if TYPE_CHECKING:
    from palaestra.context import Context


@stage
class Whole:
    """Trains on groups whose episodes have all ended; the others go back to `collect`, in the place
    of fresh prompts.
    """

    async def __call__(
        self, ctx: Context, groups: list[Group], state: State
    ) -> tuple[list[Group] | None, list[Group], State]:
        done = [all(e.status != "running" for e in g.episodes) for g in groups]
        ready = [g for g, d in zip(groups, done, strict=True) if d]
        return ready or None, [g for g, d in zip(groups, done, strict=True) if not d], state
