"""The world of a single question: one answer ends it, and it pays nothing. A verifier
scores later. Tools that the record of a task describes are shown, and calls of them are words.
"""

from __future__ import annotations

from typing import Any

from palaestra.tasks.tool_data import described_tools
from palaestra.types import Act, Ask, Frame, Key, Task, stage


@stage
class Question:
    seats: tuple[str, ...] = ("policy",)

    def reset(self, task: Task, key: Key) -> Frame:
        ask = Ask(seat="policy", say=task.prompt, tools=described_tools(task))
        return Frame(state=task, asks=(ask,))

    def step(self, state: Any, acts: tuple[Act, ...], key: Key) -> Frame:
        return Frame(state=state)
