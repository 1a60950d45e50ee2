"""A client that is a function: rule-based judges, and tests without a network."""

from __future__ import annotations

import inspect
import json
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from palaestra.errors import Fault, PalaestraError, UserError
from palaestra.services.chat.replies import readable
from palaestra.types import ChatRequest, Meter, Reply, stage

if TYPE_CHECKING:
    from palaestra.context import Context


@stage
class Scripted:
    """Answers `fn(request)`, of a `ChatRequest`: text, a dictionary (spelled as JSON), or a `Reply`;
    plain or async. A Fault that it raises is not tried again and ends one episode, any other error
    the run.
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
            reply = self.script.fn(request)
            reply = await reply if inspect.isawaitable(reply) else reply
        except Fault as fault:
            self.meter.count_fault(fault.cause)
            raise
        except PalaestraError:
            raise
        except Exception as error:
            name = getattr(self.script.fn, "__qualname__", type(self.script.fn).__name__)
            raise UserError(
                f"Scripted: {name} raised {type(error).__name__}: {error}; mend it, or raise "
                "pl.Fault(CAUSE, DETAIL) where one answer shall be an error and the run go on"
            ) from error
        if isinstance(reply, Reply):
            return replace(reply, text=readable(reply.text))
        return Reply(text=readable(reply) if isinstance(reply, str) else json.dumps(reply))
