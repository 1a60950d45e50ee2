"""What tools did for an answer, as parts of its reward."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from palaestra.types import Episode, Group, Key, stage

if TYPE_CHECKING:
    from palaestra.context import Context


@stage
class ToolUse:
    """A link after `Score` that leaves the total as it is and adds parts, all 0 without tools:

    - "tool": whether a call ran without an error,
    - "by_tool": whether one did and the answer is right,
    - "interactions": calls that were made, those that could not be read included.
    """

    async def __call__(self, ctx: Context | None, key: Key, group: Group) -> Group:
        return replace(group, episodes=tuple(map(self._counted, group.episodes)))

    def _counted(self, e: Episode) -> Episode:
        if not e.ok or e.reward is None:
            return e
        ran = successful_calls(e.facts) > 0
        parts = {
            "right": float(e.solved),
            "tool": float(ran),
            "by_tool": float(ran and e.solved),
            "interactions": float(e.facts.get("tool_calls", 0)),
        }
        reward = replace(e.reward, parts={**e.reward.parts, **parts}, solved=e.solved)
        return replace(e, reward=reward)


def successful_calls(facts: Mapping[str, Any]) -> int:
    """Calls of an episode that could be read and gave no error."""
    return facts.get("tool_calls", 0) - facts.get("tool_malformed", 0) - facts.get("tool_errors", 0)


def last_call_failed(facts: Mapping[str, Any]) -> bool:
    """Whether the last turn before the answer called, and its calls could not be read or gave an
    error. An episode without calls has none that failed.
    """
    before = tuple(facts.get("executed", ()))[:-1]
    return bool(facts.get("tool_calls")) and bool(before) and not before[-1]
