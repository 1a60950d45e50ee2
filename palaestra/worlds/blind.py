"""A world whose answers are not shown: what an open-loop planner lives in."""

from __future__ import annotations

import inspect
from dataclasses import replace
from typing import Any

from palaestra.abilities import HoldsEpisodes, KnowsSolved, bounds_of
from palaestra.types import Act, Frame, Key, Message, Task, World, stage


@stage
class Blind:
    """The same world, but all messages after the first frame say the same. Actions, pay and states
    stay what they are.
    """

    world: World
    says: str = "ok"

    @property
    def seats(self) -> tuple[str, ...]:
        return self.world.seats

    @property
    def solved(self) -> float | None:
        return self.world.solved if isinstance(self.world, KnowsSolved) else None

    @property
    def bounds(self) -> tuple[float, float] | None:
        return bounds_of(self.world)

    async def reset(self, task: Task, key: Key) -> Frame:
        frame: Any = self.world.reset(task, key)
        return await frame if inspect.isawaitable(frame) else frame

    async def step(self, state: Any, acts: tuple[Act, ...], key: Key) -> Frame:
        next_frame: Any = self.world.step(state, acts, key)
        frame: Frame = await next_frame if inspect.isawaitable(next_frame) else next_frame
        return replace(
            frame, asks=tuple(replace(a, say=tuple(map(self._hidden, a.say))) for a in frame.asks)
        )

    async def leave(self, state: Any) -> None:
        if isinstance(self.world, HoldsEpisodes):
            frame: Any = self.world.leave(state)
            await frame if inspect.isawaitable(frame) else None

    def _hidden(self, message: Message) -> Message:
        return replace(message, content=self.says)
