"""How models write tool calls: families of formats, each recognised from what a chat template
writes of a call.

Hermes, Qwen     <tool_call>{"name": "f", "arguments": {...}}</tool_call>, any number
Qwen 3.5, Coder  <tool_call><function=f><parameter=x>1</parameter></function></tool_call>, any number
Llama 3          {"name": "f", "parameters": {...}} as the whole reply, several with ";" between
Mistral          [TOOL_CALLS][{"name": "f", "arguments": {...}, "id": "..."}, ...], or
                 [TOOL_CALLS]f[CALL_ID]...[ARGS]{...}, any number

A tokenizer that says itself how replies are read (`response_template` of transformers) is believed.
A call inside a thought (`chat.reply`) is none, in any format. A model whose template shows no
tools gets the rules of the first format in a system message.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import wraps
from typing import Any, Protocol, TypeAlias, runtime_checkable

from transformers import PreTrainedTokenizerBase

from palaestra.chat.reply import open_thought, outside_thoughts
from palaestra.chat.template import REFUSALS, render
from palaestra.types import Call, Malformed, Message, ToolSchema, stage

Calls: TypeAlias = tuple[Call | Malformed, ...]
Reader: TypeAlias = Callable[[str, str, Sequence[ToolSchema]], Calls]

CALL_ID = "000000000"  # for templates that want one; some take nine letters or digits, nothing else
ASKED = "~asked~"
PROBE = ToolSchema(
    name="probe_tool",
    description="~probe~",
    parameters='{"type": "object", "properties": {"x": {"type": "string", "description": "~x~"}}}',
)
RULES = (
    'You may call tools: <tool_call>{"name": NAME, "arguments": {...}}</tool_call>. '
    "Their results follow. The tools:"
)
TAG_RULES = (
    "You may call tools: <NAME>ARGUMENT</NAME>, a JSON object where there are several arguments. "
    "Their results follow. The tools:"
)
XML_CALL = re.compile(r"\s*<function=([^>\n]+)>(.*)</function>\s*", re.DOTALL)
XML_ARGUMENT = re.compile(r"<parameter=([^>\n]+)>\n?(.*?)\n?</parameter>", re.DOTALL)
MISTRAL_MARK, LLAMA_MARK = "[TOOL_CALLS]", "<|python_tag|>"
MISTRAL_CALL = re.compile(r"\s*([\w.-]+)\s*(?:\[CALL_ID\]\s*(\w*))?\s*(?:\[ARGS\])?", re.DOTALL)
LLAMA_CALL = re.compile(r'\s*\{\s*"(?:type|name|parameters)"\s*:')
KNOWS_THOUGHTS = re.compile(r"think|thought|reason", re.IGNORECASE)
# keys that other hosts read: a call that has one must not be run without its arguments
OTHER_KEYS = {"args", "kwargs", "params", "input", "inputs", "tool_input", "action_input"}


@runtime_checkable
class ParsesReplies(Protocol):
    """A tokenizer of a transformers that reads replies, where the model says how."""

    response_template: Any

    def parse_response(self, response: str, *, prefix: str, tools: Any) -> Any: ...


def family_of(tokenizer: PreTrainedTokenizerBase) -> Reader | None:
    """What reads the calls of a model whose chat template shows tools. None = it shows none, or
    writes calls in a way that is not known here.
    """
    asked = {"role": "user", "content": ASKED}
    function = {"name": PROBE.name, "arguments": {"x": "1"}}
    called = {
        "role": "assistant",
        "content": "",
        "tool_calls": [{"type": "function", "id": CALL_ID, "function": function}],
    }
    try:
        if PROBE.name not in render(tokenizer, [asked], speak=True, tools=(PROBE,)):
            return None
        if isinstance(tokenizer, ParsesReplies) and tokenizer.response_template:
            return Declared(tokenizer)
        text = render(tokenizer, [asked, called], speak=False, tools=(PROBE,))
    except REFUSALS:
        return None
    written = text.rpartition(ASKED)[2]
    marks = {
        "<function=": read_xml,
        "<tool_call>": read_hermes,
        MISTRAL_MARK: read_mistral,
        '"parameters"': read_llama,
    }
    readers = (reader for mark, reader in marks.items() if mark in written)
    return next(readers, None) if PROBE.name in written else None


class Declared:
    """Reads what the tokenizer's own response template says. Thoughts are left out before, unless
    it knows of thoughts itself.
    """

    def __init__(self, tokenizer: PreTrainedTokenizerBase):
        asked = [{"role": "user", "content": ASKED}]
        self.tokenizer: Any = tokenizer
        self.prefix = render(tokenizer, asked, speak=True)
        self.closing = open_thought(self.prefix)
        self.thinks = bool(KNOWS_THOUGHTS.search(str(self.tokenizer.response_template)))

    def __call__(self, text: str, finish: str, tools: Sequence[ToolSchema]) -> Calls:
        schemas = [t.json() for t in tools]
        text = text if self.thinks else outside_thoughts(text, closing=self.closing)
        try:
            read = self.tokenizer.parse_response(text, prefix=self.prefix, tools=schemas)
            calls = read.get("tool_calls") or []
            return tuple(_call(c.get("function", c), text) for c in calls)
        except (*REFUSALS, AttributeError, RecursionError):
            return (Malformed(kind="cut" if finish == "length" else "json", text=text),)


def _spoken(read: Reader) -> Reader:
    """Reads what stands outside the thoughts of a reply."""

    @wraps(read)
    def call(text: str, finish: str, tools: Sequence[ToolSchema]) -> Calls:
        return read(outside_thoughts(text), finish, tools)

    return call


@_spoken
def read_hermes(text: str, finish: str, tools: Sequence[ToolSchema]) -> Calls:
    return tuple(
        x if isinstance(x, Malformed) else read_call(x) for x in tags(text, "tool_call", finish)
    )


@_spoken
def read_xml(text: str, finish: str, tools: Sequence[ToolSchema]) -> Calls:
    """Arguments that a schema does not call text are JSON, where they can be read so."""
    properties = {t.name: json.loads(t.parameters).get("properties", {}) for t in tools}

    def read(inside: str) -> Call | Malformed:
        match = XML_CALL.fullmatch(inside)
        if match is None:
            return Malformed(kind="xml", text=inside)
        name, known = match[1].strip(), properties.get(match[1].strip(), {})
        pairs = XML_ARGUMENT.findall(match[2])
        return Call(name=name, args={k: _typed(v, known.get(k)) for k, v in pairs})

    return tuple(
        x if isinstance(x, Malformed) else read(x) for x in tags(text, "tool_call", finish)
    )


@_spoken
def read_llama(text: str, finish: str, tools: Sequence[ToolSchema]) -> Calls:
    """A reply that begins as a call is one."""
    marked = text.strip().startswith(LLAMA_MARK)
    body = text.strip().removeprefix(LLAMA_MARK).strip()
    if not (marked or LLAMA_CALL.match(body)):
        return ()
    return _values_in_row(body, finish, ";")


@_spoken
def read_mistral(text: str, finish: str, tools: Sequence[ToolSchema]) -> Calls:
    calls: list[Call | Malformed] = []
    for part in text.split(MISTRAL_MARK)[1:]:
        if part.lstrip().startswith("["):
            calls += _listed(part.strip(), finish)
            continue
        named = MISTRAL_CALL.match(part)
        if named is None:
            calls.append(Malformed(kind="name", text=part))
            continue
        for call in _values_in_row(part[named.end() :], finish, "", named[1]):
            calls.append(replace(call, id=named[2] or "") if isinstance(call, Call) else call)
    return tuple(calls)


def _listed(text: str, finish: str) -> list[Call | Malformed]:
    """The calls of a JSON list, behind which other text may stand."""
    try:
        calls, _ = JSON.raw_decode(text)
    except (ValueError, RecursionError):
        return [Malformed(kind="cut" if finish == "length" else "json", text=text)]
    return [_call(c, text) for c in calls]


def _values_in_row(text: str, finish: str, between: str, name: str = "") -> Calls:
    """JSON values one after the other: whole calls, or the arguments of one that is named."""
    calls: list[Call | Malformed] = []
    rest = text.strip()
    while rest or not calls:
        try:
            value, end = JSON.raw_decode(rest)
        except (ValueError, RecursionError):
            calls.append(Malformed(kind="cut" if finish == "length" else "json", text=rest))
            break
        calls.append(_call({"name": name, "arguments": value} if name else value, rest))
        rest = rest[end:].strip()
        if name or not (between and rest.startswith(between)):
            break
        rest = rest.removeprefix(between).strip()
    return tuple(calls)


def tags(text: str, tag: str, finish: str) -> Iterator[str | Malformed]:
    """What stands in every `<tag>...</tag>`."""
    while text:
        inside = text_in_tag(text, tag, finish)
        if inside is None:
            return
        yield inside
        text = text.partition(f"<{tag}>")[2].partition(f"</{tag}>")[2]


@stage
class TagCalls:
    """Calls as tags that have the tools' names: `<search>the capital of Peru</search>`. The turn ends
    at the first closing tag. A dialect of a bench, as in Search-R1 (arXiv:2503.09516).

    What stands inside is the tool's one argument, as text where its schema says so and as JSON
    otherwise; of a tool with none or several it is a JSON object, or nothing.
    """

    rules: str = TAG_RULES

    def show(self, say: tuple[Message, ...], tools: tuple[ToolSchema, ...]) -> tuple[Message, ...]:
        return with_rules(say, tools, self.rules)

    def read(self, text: str, finish: str, tools: tuple[ToolSchema, ...]) -> Calls:
        named, calls = {t.name: t for t in tools}, list[Call | Malformed]()
        rest = outside_thoughts(text, names=tuple(named))
        marks = re.compile("|".join(f"<({re.escape(name)})>" for name in named) or "(?!)")
        while (mark := marks.search(rest)) is not None:
            name, rest = mark[0][1:-1], rest[mark.start() :]
            inside = text_in_tag(rest, name, finish) or ""
            known = json.loads(named[name].parameters).get("properties", {})
            calls += [_tagged(name, inside, known) if isinstance(inside, str) else inside]
            rest = rest.partition(f"</{name}>")[2]
        return tuple(calls)

    def stops(self, tools: tuple[ToolSchema, ...]) -> tuple[str, ...]:
        return tuple(f"</{t.name}>" for t in tools)


def _tagged(name: str, inside: str, properties: Mapping[str, Any]) -> Call | Malformed:
    if len(properties) == 1:
        ((argument, schema),) = properties.items()
        return Call(name=name, args={argument: _typed(inside.strip(), schema)})
    try:
        return _call({"name": name, "arguments": JSON.decode(inside.strip() or "{}")}, inside)
    except (ValueError, RecursionError):
        return Malformed(kind="json", text=inside)


def text_in_tag(text: str, tag: str, finish: str) -> str | Malformed | None:
    """What stands in the first `<tag>...</tag>`; None = there is no such tag."""
    _, opened, rest = text.partition(f"<{tag}>")
    inside, closed, _ = rest.partition(f"</{tag}>")
    if not opened:
        return None
    return (
        inside if closed else Malformed(kind="cut" if finish == "length" else "unclosed", text=rest)
    )


def read_first(text: str, finish: str) -> Call | Malformed | None:
    """The first `<tool_call>{"name": ..., "arguments": {...}}</tool_call>` of a turn, outside its
    thoughts; None = it calls nothing.
    """
    inside = text_in_tag(outside_thoughts(text), "tool_call", finish)
    return read_call(inside) if isinstance(inside, str) else inside


def read_call(text: str) -> Call | Malformed:
    """A call in Hermes' JSON. `arguments` may be an object, or one spelled as a string."""
    try:
        return _call(JSON.decode(text), text)
    except (ValueError, RecursionError):
        return Malformed(kind="json", text=text)


def _call(value: Any, text: str) -> Call | Malformed:
    """A call from its JSON: `arguments`, which Llama calls `parameters`."""
    fields = value if isinstance(value, dict) else {}
    name, arguments = fields.get("name"), fields.get("arguments", fields.get("parameters", {}))
    try:
        arguments = JSON.decode(arguments) if isinstance(arguments, str) else arguments
    except (ValueError, RecursionError):
        return Malformed(kind="json", text=text)
    if not isinstance(name, str) or not name:
        return Malformed(kind="name", text=text)
    if not isinstance(arguments, dict) or OTHER_KEYS & fields.keys():
        return Malformed(kind="arguments", text=text)
    return Call(name=name, args=arguments, id=str(fields.get("id") or ""))


def _typed(text: str, schema: Any) -> Any:
    if isinstance(schema, dict) and schema.get("type") == "string":
        return text
    try:
        return JSON.decode(text)
    except (ValueError, RecursionError):
        return text


def _refuse(constant: str) -> Any:
    raise ValueError(f"{constant} is not JSON")


JSON = json.JSONDecoder(parse_constant=_refuse)


# ---- rules for a model whose template shows no tools


def with_rules(
    say: tuple[Message, ...], tools: Iterable[ToolSchema], rules: str = RULES
) -> tuple[Message, ...]:
    """Messages whose system message says how tools are called, and which there are."""
    rules = "\n".join([rules, *map(line_of, tools)])
    if say and say[0].role == "system":
        return (replace(say[0], content=f"{say[0].content}\n\n{rules}"), *say[1:])
    return (Message(role="system", content=rules), *say)


def line_of(tool: ToolSchema) -> str:
    """A tool on one line: `add(a: integer, b: integer = optional): The sum of a and b.`"""
    schema = json.loads(tool.parameters)
    properties, needed = schema.get("properties", {}), schema.get("required", [])
    arguments = ", ".join(
        f"{name}: {_kind(about)}{'' if name in needed else ' = optional'}"
        for name, about in properties.items()
    )
    notes = "".join(
        f" {name}: {about['description']}"
        for name, about in properties.items()
        if isinstance(about, dict) and about.get("description")
    )
    shared = f" $defs: {json.dumps(schema['$defs'])}" if "$defs" in schema else ""
    return f"{tool.name}({arguments}): {' '.join(tool.description.split())}{notes}{shared}"


def _kind(schema: Any) -> str:
    """The type of an argument in a word, or its whole schema."""
    rest = {k: v for k, v in schema.items() if k not in ("title", "description", "default")}
    return str(rest["type"]) if list(rest) == ["type"] else json.dumps(rest)
