"""Logged play as single steps: dense labels from events, and states as text.

An event reveals which macro action a player was about. It labels its own frame and those up to `window`
before it; where several events reach a frame the most important one counts, of equal ones the next.

    frames 0 .. 9, "defend" at 4, "dragon" at 6, window 4, dragon before defend
    0 1 defend    2 3 4 5 6 dragon    7 8 9 none
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from palaestra.types import value_class


@value_class
class FrameLabel:
    """The action of a frame, and how long after it the event comes; 0 = it is that of the frame."""

    action: str
    ahead: float


def relabel_frames(
    frames_N: Sequence[float],
    events_N: Sequence[Sequence[str]],
    window: float,
    priority: Sequence[str],
) -> list[FrameLabel | None]:
    """The label of each frame; None = no event is near.

    Args:
        frames_N: the number or time of each frame of one player's game.
        events_N: by frame, the actions that its events reveal.
        window: how long before an event frames have its label.
        priority: the actions, the most important one first; others come behind, in their order.
    """
    rank = {name: i for i, name in enumerate(priority)}
    events = [(at, name) for at, names in zip(frames_N, events_N, strict=True) for name in names]
    for _, name in events:
        rank.setdefault(name, len(rank))
    labels = list[FrameLabel | None]()
    for at in frames_N:
        near = [(rank[name], e - at, name) for e, name in events if 0 <= e - at <= window]
        best = min(near, default=None)
        labels.append(None if best is None else FrameLabel(action=best[2], ahead=best[1]))
    return labels


def state_text(state: Any, hide: Sequence[str] = (), digits: int = 2) -> str:
    """A state as JSON on one line, in the order of its keys, without what `hide` names and with numbers
    of at most `digits` behind the point; text stays text. "enemy.gold" hides a key of an inner object,
    in lists that of each member.
    """
    if isinstance(state, str):
        return state
    visible = state
    for path in hide:
        visible = _without(visible, path.split("."))
    return json.dumps(_rounded(visible, digits), ensure_ascii=False, separators=(",", ":"))


def _without(value: Any, path: Sequence[str]) -> Any:
    if isinstance(value, list | tuple):
        return [_without(x, path) for x in value]
    if not isinstance(value, Mapping) or path[0] not in value:
        return value
    if len(path) == 1:
        return {k: x for k, x in value.items() if k != path[0]}
    return {k: _without(x, path[1:]) if k == path[0] else x for k, x in value.items()}


def _rounded(value: Any, digits: int) -> Any:
    if isinstance(value, float):
        short = round(value, digits)
        return int(short) if short.is_integer() else short
    if isinstance(value, Mapping):
        return {k: _rounded(x, digits) for k, x in value.items()}
    return [_rounded(x, digits) for x in value] if isinstance(value, list | tuple) else value
