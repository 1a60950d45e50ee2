"""A client that is a function: rule-based judges, and tests without a network."""

from __future__ import annotations

import inspect
import json
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from palaestra.errors import Fault
from palaestra.types import ChatRequest, Meter, Reply, stage

if TYPE_CHECKING:
    from palaestra.context import Context


@stage
class Scripted:
    """Answers `fn(request)`: text, a dictionary (spelled as JSON), or a `Reply`; plain or async. It
    may raise a Fault.
    """

    fn: Callable[[ChatRequest], Any]
    name: str = "script"

    def open(self, ctx: Context | None = None) -> ScriptedClient:
        return ScriptedClient(self)


class ScriptedClient:
    def __init__(self, script: Scripted):
        self.script, self.name, self.meter = script, script.name, Meter()

    async def chat(self, request: ChatRequest) -> Reply:
        self.meter.calls += 1
        try:
            found = self.script.fn(request)
            found = await found if inspect.isawaitable(found) else found
        except Fault as fault:
            self.meter.count_fault(fault.cause)
            raise
        if isinstance(found, Reply):
            return found
        return Reply(text=found if isinstance(found, str) else json.dumps(found))
