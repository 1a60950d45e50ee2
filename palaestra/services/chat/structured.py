"""Replies as values of a pydantic model: its schema in the prompt and in the request, the object
found in the text, and one more try with what was wrong.
"""

from __future__ import annotations

import json
import re
from dataclasses import replace
from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError

from palaestra.context import Client
from palaestra.errors import Fault
from palaestra.types import ChatRequest, Message

M = TypeVar("M", bound=BaseModel)
LONGEST = 1 << 16  # characters of a reply that are searched, from its end


def schema_of(model: type[BaseModel]) -> dict[str, Any]:
    """The model's JSON schema, without other fields than its own: what endpoints call strict."""
    return {**model.model_json_schema(), "additionalProperties": False}


def add_schema(request: ChatRequest, model: type[BaseModel]) -> ChatRequest:
    """The request for an object of the model."""
    schema = schema_of(model)
    spelled = f"\n\nAnswer with JSON only, fitting this schema: {json.dumps(schema)}"
    *before, last = request.messages
    return replace(
        request, messages=(*before, replace(last, content=last.content + spelled)), schema=schema
    )


async def ask(client: Client, request: ChatRequest, model: type[M], *, asks: int = 2) -> M:
    """The client's answer as an object of the model.

    A reply that does not fit is shown to the client with what is wrong, `asks` - 1 times; then
    Fault "chat-format" is raised. So it is where the client refuses such a longer request, which may
    be more than its context, though it took the first. A reply that was cut is never mended: half of
    "10" is a 1.
    """
    request, why, replies = add_schema(request, model), "", 0
    while replies < asks:
        try:
            reply = await client.chat(request)
        except Fault as fault:
            if not replies or fault.cause != "chat-refused":
                raise
            why = f"{why}; to be asked again was refused: {fault}"
            break
        replies += 1
        try:
            if reply.finish == "length":
                raise ValueError(f"it was cut at {request.max_tokens} tokens")
            return parse_object(reply.text, model)
        except ValueError as error:
            why = str(error)
        again = Message(
            role="user", content=f"That does not fit: {why}. Answer again, with the JSON only."
        )
        request = replace(
            request,
            messages=(*request.messages, Message(role="assistant", content=reply.text), again),
        )
    client.meter.count_fault("chat-format")
    raise Fault("chat-format", f"{client.name} gave no fitting JSON in {replies} replies: {why}")


def parse_object(text: str, model: type[M]) -> M:
    """The last JSON object in a text that fits the model. Raises ValueError with what is wrong."""
    values = objects(text) or objects(re.sub(r",\s*([}\]])", r"\1", text))
    if not values:
        raise ValueError("there is no JSON in it")
    why = ""
    for x in reversed(values):
        try:
            return model.model_validate(x)
        except ValidationError as error:
            first = error.errors()[0]
            why = why or f"{'.'.join(map(str, first['loc'])) or 'it'}: {first['msg']}"
    raise ValueError(why)


def objects(text: str) -> list[Any]:
    """Every outermost JSON object in a text."""
    decoder, values, text = json.JSONDecoder(parse_constant=_refuse), [], text[-LONGEST:]
    at = text.find("{")
    while at >= 0:
        try:
            one, end = decoder.raw_decode(text, at)
            values.append(one)
        except ValueError:
            end = at + 1
        except RecursionError:
            break
        at = text.find("{", end)
    return values


def _refuse(constant: str) -> Any:
    raise ValueError(f"{constant} is not JSON")
