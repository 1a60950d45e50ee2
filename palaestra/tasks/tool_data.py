"""Tools in records: calls in the form of OpenAI's API, and columns that describe tools."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from palaestra.errors import UserError
from palaestra.tasks.records import Record, describe_value, kind

CALL = '{"type": "function", "function": {"name": "...", "arguments": {...}}}'
WRITTEN = (
    'calls in "tool_calls" are written into the content as <tool_call>{"name": ..., "arguments": '
    "{...}}</tool_call>, the form of Hermes and Qwen; for a model of another family write them in "
    "the content yourself"
)
THOUGHTS = ("reasoning_content", "reasoning", "thinking")  # what reasoning models think before
THOUGHT = (
    "what a message has as reasoning is written before its content as <think>...</think>, the form "
    "of DeepSeek-R1 and Qwen3; for a model of another family write it in the content yourself"
)
NOT_SHOWN = (
    "the column 'tools' describes tools and is not shown to the model, which sees and may call "
    "what --tools names"
)


def write_calls(message: Mapping[str, Any], where: str, field: str) -> str:
    """The calls of a message of the assistant as its content has them: each in a tag. "" = it has
    none.

    Args:
        message: with `tool_calls`, a list in OpenAI's form, or `function_call`, its older one.
        where: the place of the record, for messages to the user.
        field: the message in the record.

    Raises:
        UserError: a call that cannot be read.
    """
    if (old := message.get("function_call")) is not None:
        return _write(old, where, f"{field}.function_call")
    calls = message.get("tool_calls")
    if calls is None:
        return ""
    if not isinstance(calls, list):
        raise UserError(
            f"{where}: {field}.tool_calls is {describe_value(calls)}; write a list of {CALL}"
        )
    each = enumerate(calls)
    return "\n".join(_write(call, where, f"{field}.tool_calls[{i}]") for i, call in each)


def _write(call: Any, where: str, field: str) -> str:
    given = call.get("function", call) if isinstance(call, Mapping) else call
    name = given.get("name") if isinstance(given, Mapping) else None
    if not isinstance(given, Mapping) or not isinstance(name, str) or not name:
        raise UserError(f"{where}: {field} is {describe_value(call)}; write {CALL}")
    arguments = given.get("arguments")
    if isinstance(arguments, Mapping):  # a column of structs has null for other calls' arguments
        arguments = {k: v for k, v in arguments.items() if v is not None}
    try:
        arguments = json.loads(arguments) if isinstance(arguments, str) else arguments
    except ValueError:
        raise UserError(
            f"{where}: {field} has arguments {describe_value(arguments)}, which are no JSON; write "
            "an object, or the JSON of one"
        ) from None
    if not isinstance(arguments, Mapping | None):
        raise UserError(f"{where}: {field} has arguments that are {kind(arguments)}; write {{...}}")
    text = json.dumps({"name": name, "arguments": arguments or {}}, ensure_ascii=False)
    return f"<tool_call>\n{text}\n</tool_call>"


def notes_on_tools(record: Record) -> set[str]:
    """What is to be said of the tools and of the thoughts in a record."""
    notes: set[str] = set()
    for name in ("messages", "prompt"):
        messages = record.get(name)
        for message in messages if isinstance(messages, list) else ():
            if isinstance(message, Mapping) and (
                message.get("tool_calls") is not None or message.get("function_call") is not None
            ):
                notes.add(WRITTEN)
            if isinstance(message, Mapping) and any(message.get(k) for k in THOUGHTS):
                notes.add(THOUGHT)
    if describes_tools(record.get("tools")):
        notes.add(NOT_SHOWN)
    return notes


def describes_tools(column: Any) -> bool:
    """Whether a column holds descriptions of tools, also as JSON text; names of tools are none."""
    if isinstance(column, str):
        try:
            column = json.loads(column)
        except (ValueError, RecursionError):
            return False
    return (
        isinstance(column, Sequence)
        and not isinstance(column, str)
        and any(isinstance(tool, Mapping) for tool in column)
    )
