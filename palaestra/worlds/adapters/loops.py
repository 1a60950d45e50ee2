"""A library's own loop over an episode, which asks a seat and waits for its reply."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

Question = TypeVar("Question")
Reply = TypeVar("Reply")


@dataclass
class OwnLoop(Generic[Question, Reply]):
    """Runs between two replies. What it asks is handed out one question at a time, in order."""

    asked: list[tuple[Question, asyncio.Future[Reply]]] = field(default_factory=list)
    changed: asyncio.Event = field(default_factory=asyncio.Event)
    runner: asyncio.Task[None] | None = None

    def begin(self, loop: Coroutine[Any, Any, None]) -> None:
        async def run() -> None:
            try:
                await loop
            finally:
                self.changed.set()

        self.runner = asyncio.create_task(run())

    async def ask(self, question: Question) -> Reply:
        """Called by the loop: the reply to a question."""
        reply: asyncio.Future[Reply] = asyncio.get_running_loop().create_future()
        self.asked.append((question, reply))
        self.changed.set()
        return await reply

    def answer(self, reply: Reply) -> None:
        """The reply to the question that was handed out."""
        self.asked.pop(0)[1].set_result(reply)

    async def next_question(self) -> Question | None:
        """None where the loop has ended. Raises what it raised."""
        runner = self.runner
        assert runner is not None
        while not self.asked and not runner.done():
            self.changed.clear()
            await self.changed.wait()
            await asyncio.sleep(0)  # so that a loop that has ended is done
        if self.asked:
            return self.asked[0][0]
        runner.result()
        return None

    async def close(self) -> None:
        if self.runner is not None and not self.runner.done():
            self.runner.cancel()
            with suppress(asyncio.CancelledError, Exception):
                await self.runner
