"""The Responses API in OpenAI's form, as a chat completion: what a request asks, and how an answer is written.

A response is one completion. Its items are a message, if something was said beside calls, and a call of a function
each. What an agent sends back of them becomes the one message of the assistant again that was sampled.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from palaestra.types import value_class
from palaestra.worlds.gateway.wire import (
    PIECE,
    Body,
    CompletionAnswer,
    CompletionRequest,
    Refusal,
    ignored,
    read_request,
)

TAKEN = {
    "input", "instructions", "model", "tools", "tool_choice", "max_output_tokens", "temperature", "stream",
    "previous_response_id",
}  # fmt: skip
# values that ask for nothing, and parameters that change no token
HARMLESS: Mapping[str, Sequence[Any]] = {
    "top_p": (1,), "truncation": ("disabled",), "parallel_tool_calls": (True,), "background": (False,),
    "include": ([],), "text": ({}, {"format": {"type": "text"}}), "top_logprobs": (0,),
}  # fmt: skip
WITHOUT_EFFECT = {
    "user", "metadata", "service_tier", "safety_identifier", "prompt_cache_key", "store", "stream_options",
}  # fmt: skip
NOT_HERE = ("background", "conversation", "prompt")  # what would be answered wrongly without it
TEXTS = ("input_text", "output_text", "text", "refusal")


def read_response_request(
    body: Any, before: Mapping[str, Sequence[Body]], agent: str = ""
) -> tuple[CompletionRequest, list[Body]]:
    """What is asked as a completion, and its messages without the instructions, which are not kept for a
    request that follows.

    Args:
        body: of the request, from its JSON.
        before: the messages of each response of the episode, its own among them, by its id.
        agent: see `wire.read_request`.

    Raises:
        Refusal: where it cannot be read.
    """
    if not isinstance(body, Mapping):
        raise Refusal(400, "the body is no JSON object")
    for name in NOT_HERE:
        if body.get(name):
            raise Refusal(
                400, f"{name!r} is not there; send the whole input, or previous_response_id"
            )
    earlier: list[Body] = []
    if previous := body.get("previous_response_id"):
        if previous not in before:
            raise Refusal(404, f"no response {previous!r:.60} in this episode", "not_found")
        earlier = list(before[previous])
    messages = [*earlier, *read_items(body.get("input"))]
    head = [{"role": "system", "content": body["instructions"]}] if body.get("instructions") else []
    tools = body.get("tools")
    if tools is not None and not isinstance(tools, list):
        raise Refusal(400, "tools must be a list")
    asked = {
        "messages": [*head, *messages],
        "model": body.get("model"),
        "tools": [read_tool(t, f"tools[{i}]") for i, t in enumerate(tools or ())],
        "tool_choice": body.get("tool_choice"),
        "max_completion_tokens": body.get("max_output_tokens"),
        "temperature": body.get("temperature"),
        "stream": body.get("stream"),
    }
    request = read_request(asked, agent)
    return replace(
        request, notes=(*request.notes, *ignored(body, TAKEN | WITHOUT_EFFECT, HARMLESS))
    ), messages


def read_tool(given: Any, where: str) -> dict[str, Any]:
    """A function in the form of chat completions. Raises Refusal for a tool that a server would have."""
    if not isinstance(given, Mapping) or given.get("type") != "function":
        kind = given.get("type") if isinstance(given, Mapping) else given
        raise Refusal(400, f"{where} is {kind!r:.40}; only tools of type 'function' are taken here")
    return {
        "type": "function",
        "function": {k: v for k, v in given.items() if k not in ("type", "strict")},
    }


def read_items(given: Any) -> list[dict[str, Any]]:
    """The messages of an input, a text or a list of items. Items of the assistant that follow each other are
    one message, as they came from one.
    """
    if isinstance(given, str):
        return [{"role": "user", "content": given}]
    if not isinstance(given, list):
        raise Refusal(400, "input must be a text or a list of items")
    messages: list[dict[str, Any]] = []
    for i, item in enumerate(given):
        where = f"input[{i}]"
        if not isinstance(item, Mapping):
            raise Refusal(400, f"{where} must be an object")
        kind = item.get("type", "message")
        last = messages[-1] if messages and messages[-1]["role"] == "assistant" else None
        if kind == "reasoning":
            continue
        if (
            kind == "message"
            and item.get("role") == "assistant"
            and last
            and "tool_calls" not in last
        ):
            last["content"] = f"{last['content']}{read_text(item.get('content'), where)}"
        elif kind == "message":
            messages.append(
                {"role": item.get("role"), "content": read_text(item.get("content"), where)}
            )
        elif kind == "function_call":
            if last is None:
                messages.append(last := {"role": "assistant", "content": ""})
            last.setdefault("tool_calls", []).append(read_call(item, where))
        elif kind == "function_call_output":
            text = read_text(item.get("output"), where)
            messages.append({"role": "tool", "tool_call_id": item.get("call_id"), "content": text})
        else:
            raise Refusal(400, f"{where} is of the type {kind!r:.40}, which is not taken here")
    return messages


def read_call(item: Body, where: str) -> dict[str, Any]:
    name, arguments = item.get("name"), item.get("arguments")
    if not isinstance(name, str) or not isinstance(arguments, str):
        raise Refusal(400, f"{where} must have a name, and arguments as a text")
    return {
        "id": item.get("call_id"),
        "type": "function",
        "function": {"name": name, "arguments": arguments},
    }


def read_text(content: Any, where: str) -> str:
    if content is None or isinstance(content, str):
        return content or ""
    parts = content if isinstance(content, list) else [content]
    for part in parts:
        known = isinstance(part, Mapping) and part.get("type", "text") in TEXTS
        if not known or not isinstance(part.get("text", part.get("refusal")), str):
            raise Refusal(400, f"{where} holds what is no text; only text is taken here")
    return "".join(part.get("text", part.get("refusal")) for part in parts)


@value_class
class ResponseAnswer:
    """What an agent is answered: a completion as a response. `body` is that of the request."""

    answer: CompletionAnswer
    body: Mapping[str, Any]

    @property
    def id(self) -> str:
        return f"resp_{self.answer.id}"

    @property
    def message(self) -> Mapping[str, Any]:
        """As a chat completion has it."""
        return self.answer.messages[0]

    def items(self) -> list[dict[str, Any]]:
        """What was said, and each call."""
        items: list[dict[str, Any]] = []
        if self.message["content"] or "tool_calls" not in self.message:
            part = {"type": "output_text", "text": self.message["content"] or "", "annotations": []}
            items.append(
                {
                    "type": "message",
                    "id": f"msg_{self.answer.id}",
                    "role": "assistant",
                    "content": [part],
                }
            )
        for i, call in enumerate(self.message.get("tool_calls", ())):
            about = {"name": call["function"]["name"], "arguments": call["function"]["arguments"]}
            items.append(
                {
                    "type": "function_call",
                    "id": f"fc_{self.answer.id}_{i}",
                    "call_id": call["id"],
                    **about,
                }
            )
        return [{**item, "status": self.status} for item in items]

    @property
    def status(self) -> str:
        return "incomplete" if self.answer.finish(0) == "length" else "completed"

    def json(self, status: str = "") -> dict[str, Any]:
        """The body of an answer; with a `status` that of one that is still being made, without its items."""
        usage = self.answer.usage()
        counted = {
            "input_tokens": usage["prompt_tokens"],
            "input_tokens_details": {"cached_tokens": 0},
            "output_tokens": usage["completion_tokens"],
            "output_tokens_details": {"reasoning_tokens": 0},
            "total_tokens": usage["total_tokens"],
        }
        cut = not status and self.status == "incomplete"
        return {
            "id": self.id,
            "object": "response",
            "created_at": int(time.time()),
            "status": status or self.status,
            "error": None,
            "incomplete_details": {"reason": "max_output_tokens"} if cut else None,
            "instructions": self.body.get("instructions"),
            "metadata": self.body.get("metadata") or {},
            "model": self.answer.model,
            "output": [] if status else self.items(),
            "parallel_tool_calls": True,
            "previous_response_id": self.body.get("previous_response_id"),
            "temperature": self.body.get("temperature"),
            "tool_choice": self.body.get("tool_choice") or "auto",
            "tools": self.body.get("tools") or [],
            "top_p": None,
            "usage": None if status else counted,
        }

    def events(self) -> Iterator[dict[str, Any]]:
        """The same as a stream, in the order that OpenAI's has."""
        for number, event in enumerate(self._events()):
            yield {**event, "sequence_number": number}

    def _events(self) -> Iterator[dict[str, Any]]:
        for name in ("created", "in_progress"):
            yield {"type": f"response.{name}", "response": self.json("in_progress")}
        for at, item in enumerate(self.items()):
            place = {"output_index": at}
            begun = {"content": []} if item["type"] == "message" else {"arguments": ""}
            added = {**item, **begun, "status": "in_progress"}
            yield {"type": "response.output_item.added", **place, "item": added}
            here = {**place, "item_id": item["id"]}
            yield from (
                self._text(item, here) if item["type"] == "message" else self._call(item, here)
            )
            yield {"type": "response.output_item.done", **place, "item": item}
        yield {"type": f"response.{self.status}", "response": self.json()}

    def _text(self, item: Body, here: Body) -> Iterator[dict[str, Any]]:
        part, place = item["content"][0], {**here, "content_index": 0}
        yield {"type": "response.content_part.added", **place, "part": {**part, "text": ""}}
        for piece in PIECE.findall(part["text"]):
            yield {"type": "response.output_text.delta", **place, "delta": piece, "logprobs": []}
        yield {"type": "response.output_text.done", **place, "text": part["text"], "logprobs": []}
        yield {"type": "response.content_part.done", **place, "part": part}

    def _call(self, item: Body, here: Body) -> Iterator[dict[str, Any]]:
        arguments = item["arguments"]
        yield {"type": "response.function_call_arguments.delta", **here, "delta": arguments}
        done = {"arguments": arguments, "name": item["name"]}
        yield {"type": "response.function_call_arguments.done", **here, **done}
