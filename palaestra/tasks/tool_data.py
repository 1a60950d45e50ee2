"""Tools in records: calls in the form of OpenAI's API, and columns that describe tools."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from palaestra.abilities import OffersTools
from palaestra.errors import UserError
from palaestra.tasks.records import Record, describe_value, kind
from palaestra.types import Task, ToolSchema

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
SHOWN = (
    "the tools that the column 'tools' describes are shown to the model with their record, and none "
    "is run: an answer with a call is the answer. --tools FILE.py:NAME gives tools that are run, and "
    "shows those instead"
)
TYPES = {  # names of types that data write, by those of JSON schemas
    "str": "string", "int": "integer", "float": "number", "bool": "boolean", "list": "array",
    "tuple": "array", "dict": "object",
}  # fmt: skip


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
    notes = notes_on_messages(record.get("messages")) | notes_on_messages(record.get("prompt"))
    if describes_tools(record.get("tools")):
        notes.add(SHOWN)
    return notes


def notes_on_messages(messages: Any) -> set[str]:
    """What is to be said of calls and thoughts in messages; nothing of what is no list of them."""
    notes: set[str] = set()
    for message in messages if isinstance(messages, list) else ():
        if not isinstance(message, Mapping):
            continue
        if message.get("tool_calls") is not None or message.get("function_call") is not None:
            notes.add(WRITTEN)
        if any(message.get(k) for k in THOUGHTS):
            notes.add(THOUGHT)
    return notes


def describes_tools(column: Any) -> bool:
    """Whether a column holds descriptions of tools, also as JSON text; names of tools are none."""
    return any(isinstance(tool, Mapping) for tool in _listed(column))


def _listed(column: Any) -> Sequence[Any]:
    if isinstance(column, str):
        try:
            column = json.loads(column)
        except (ValueError, RecursionError):
            return ()
    return column if isinstance(column, Sequence) and not isinstance(column, str) else ()


def read_tools(record: Record, where: str) -> Record:
    """The record with what its column `tools` describes in the form of chat templates, OpenAI's: a
    list of {"type": "function", "function": {"name", "description", "parameters"}}. The functions
    alone are read too, `input_schema` for `parameters`, and parameters without a schema around
    them, {"city": {"type": "str", "description": "..."}}. Columns of structs give each tool the
    keys of all others: what is null is left out.

    Raises:
        UserError: a description without a name, or with parameters that are no object.
    """
    column = record.get("tools")
    if not describes_tools(column):
        return record
    tools = [_schema(x, f"{where}: tools[{i}]").json() for i, x in enumerate(_listed(column))]
    return {**record, "tools": tools}


def _schema(value: Any, at: str) -> ToolSchema:
    value = _filled(value)
    given = value.get("function", value) if isinstance(value, Mapping) else value
    name = given.get("name") if isinstance(given, Mapping) else None
    if not isinstance(given, Mapping) or not isinstance(name, str) or not name:
        raise UserError(
            f'{at} is {describe_value(value)}; write {{"type": "function", "function": {{"name": '
            '"...", "description": "...", "parameters": {...}}}'
        )
    parameters = given.get("parameters", given.get("input_schema", {}))
    if isinstance(parameters, str) and describes_object(parameters):
        parameters = json.loads(parameters)
    if not isinstance(parameters, Mapping):
        raise UserError(f"{at}: parameters is {describe_value(parameters)}; write a JSON schema")
    if parameters.get("type") != "object" and "properties" not in parameters:
        parameters = {
            "type": "object",
            "properties": {k: _with_type(v) for k, v in parameters.items()},
        }
    return ToolSchema(
        name=name,
        description=str(given.get("description") or ""),
        parameters=json.dumps(parameters, ensure_ascii=False),
    )


def describes_object(text: str) -> bool:
    """Whether a text is a JSON object."""
    try:
        return isinstance(json.loads(text), dict)
    except (ValueError, RecursionError):
        return False


def _with_type(parameter: Any) -> Any:
    if not isinstance(parameter, Mapping):
        return parameter
    name = str(parameter.get("type", "")).partition(",")[0]  # "str, optional"
    return {**parameter, "type": TYPES.get(name, name)} if name else parameter


def _filled(value: Any) -> Any:
    """Without what is null, all the way down."""
    if isinstance(value, Mapping):
        return {k: _filled(v) for k, v in value.items() if v is not None}
    return [_filled(v) for v in value] if isinstance(value, list | tuple) else value


def described_tools(task: Task) -> tuple[ToolSchema, ...]:
    """The tools that a task's record describes, as `read_tools` reads them."""
    column = task.meta.get("tools")
    if not describes_tools(column):
        return ()
    return tuple(_schema(tool, f"task {task.id!r}: tools") for tool in _listed(column))


async def tools_of_task(world: object, task: Task) -> tuple[ToolSchema, ...]:
    """What a model is shown with a task as what it may call: the tools of the world, else what the
    task's own record describes.
    """
    return await world.open() if isinstance(world, OffersTools) else described_tools(task)
