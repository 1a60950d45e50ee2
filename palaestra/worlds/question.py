"""The world of a single question: one answer ends it, and it pays nothing. A verifier
scores later.
"""

from __future__ import annotations

from typing import Any

from palaestra.types import Act, Ask, Frame, Key, Task, stage


@stage
class Question:
    seats: tuple[str, ...] = ("policy",)

    def reset(self, task: Task, key: Key) -> Frame:
        return Frame(state=task, asks=(Ask(seat="policy", say=task.prompt),))

    def step(self, state: Any, acts: tuple[Act, ...], key: Key) -> Frame:
        return Frame(state=state)
