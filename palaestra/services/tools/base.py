"""A tool: what a model is told of it, and what a call gives."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from concurrent.futures import Future
from contextlib import suppress
from typing import Any, Protocol

from palaestra.types import ToolSchema, value_class

ERROR = "error: "  # how a result begins that is none


@value_class
class ToolResult:
    """What a call gave, as the model reads it. `failed`: it is an error, which is an answer too."""

    text: str
    failed: bool = False


class Tool(Protocol):
    """Something that a model calls. What goes wrong in a call is an outcome; a `Fault` is
    infrastructure's, and ends the episode.
    """

    @property
    def schema(self) -> ToolSchema: ...

    async def call(self, args: Mapping[str, Any], seconds: float) -> ToolResult:
        """The outcome, after at most `seconds`. Raises Fault."""
        ...


def failure(text: str) -> ToolResult:
    return ToolResult(text=ERROR + text, failed=True)


def too_slow(seconds: float) -> ToolResult:
    return failure(f"no result within {seconds:g} s")


async def wait_for(work: Future[Any], seconds: float) -> bool:
    """Whether it is done within that time. It is not called off."""
    loop, done = asyncio.get_running_loop(), asyncio.Event()

    def tell(_: Future[Any]) -> None:
        with suppress(RuntimeError):  # nobody waits any more: the loop is closed
            loop.call_soon_threadsafe(done.set)

    work.add_done_callback(tell)
    with suppress(TimeoutError):
        await asyncio.wait_for(done.wait(), seconds)
    return work.done()
