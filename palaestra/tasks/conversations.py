"""Messages of a record: what is a prompt, and which turns of the assistant are imitated.

The last message is the user's, and the whole is a prompt; or it is the assistant's, and the
conversation shows how to answer. Then all messages of the assistant are imitated, unless some are
marked: `weight` 0 leaves one out, as where chat models are fine-tuned by OpenAI (developers.openai.com,
"Supervised fine-tuning", multi-turn chat examples); where one has `trained` true, only such are. A
conversation that shows how to answer may hold the results of tools, which are never imitated. Calls
in OpenAI's `tool_calls` become text (`palaestra.tasks.tool_data`); what names them beside a result
is left out.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from palaestra.errors import UserError
from palaestra.tasks.picture_data import split_content, with_pictures
from palaestra.tasks.records import describe_value, kind
from palaestra.tasks.tool_data import THOUGHTS, write_calls
from palaestra.types import Message, value_class

ROLES = ("system", "user", "assistant", "tool")
MARKS = ("weight", "trained")
BESIDE = {  # what OpenAI's form has beside the content
    "assistant": ("tool_calls", "function_call", "name"),
    "tool": ("tool_call_id", "name"),
    "user": ("name",),
    "system": ("name",),
}
SHOWN = '{"role": "user", "content": "..."}'


@value_class
class Conversation:
    """A prompt, and where it goes on as it should, the reply: text to imitate. `imitated` are the
    places of earlier messages to imitate too.
    """

    prompt: tuple[Message, ...]
    reply: str | None = None
    imitated: tuple[int, ...] = ()


def read_conversation(value: Any, where: str, field: str = "messages") -> Conversation:
    """A list of messages. Raises UserError that says what is wrong with which."""
    if not isinstance(value, list):
        raise UserError(f"{where}: {field} is {describe_value(value)}; write a list of {SHOWN}")
    if not value:
        raise UserError(f"{where}: {field} is an empty list; write messages, [{SHOWN}]")
    skipped = int(is_blank_system(value[0]) and len(value) > 1)
    messages = tuple(
        _message(m, f"{field}[{i}]", where) for i, m in enumerate(value[skipped:], skipped)
    )
    value = value[skipped:]
    late = [i for i, m in enumerate(messages) if i and m.role == "system"]
    if late:
        raise UserError(
            f"{where}: {field}[{late[0] + skipped}] is a system message; only the first may be one"
        )
    imitated = _imitated(value, messages)
    _check_results(messages, f"{where}: {field}", shows=imitated is not None)
    if imitated is None:
        _check_last(messages, messages, where, field)
        return Conversation(prompt=messages)
    if not imitated:
        raise UserError(
            f"{where}: {field} marks no message of the assistant to be imitated; give one of them "
            '"weight": 1'
        )
    *before, last = imitated
    _check_last(messages[:last], messages, where, field)
    return Conversation(
        prompt=messages[:last], reply=messages[last].content, imitated=tuple(before)
    )


def read_reply(
    value: Sequence[Any], shared: int, where: str, field: str
) -> tuple[tuple[Message, ...], str]:
    """Messages that go on from a prompt and end with the assistant: those before the last one, and the
    text of that. Messages of the assistant are trained, but for the first `shared` of all, which are the
    context of two replies that begin alike, and those with `weight` 0 or `trained` false.
    """
    messages = [_message(m, f"{field}[{i}]", where) for i, m in enumerate(value)]
    if not messages or messages[-1].role != "assistant":
        last = f"ends with {messages[-1].role!r}" if messages else "is an empty list"
        raise UserError(
            f"{where}: {field} {last}; write text, or messages after the prompt that end with the "
            "assistant"
        )
    for i, m in enumerate(messages):
        if m.role == "system" or (m.role == "tool" and i == 0):
            raise UserError(
                f"{where}: {field}[{i}] is from {m.role!r}; a reply begins with the assistant, and goes "
                "on with users, results of its calls, and the assistant"
            )
        if i and m.role == messages[i - 1].role == "assistant":
            raise UserError(
                f"{where}: {field}[{i - 1}] and {field}[{i}] are both from the assistant; a reply has "
                "somebody else between them"
            )
        if m.pictures:
            raise UserError(f"{where}: {field}[{i}] has a picture; only a prompt shows pictures")
    _check_results(messages, f"{where}: {field}", shows=True)
    left_out = [
        i < shared or m.get("weight") == 0 or m.get("trained") is False for i, m in enumerate(value)
    ]
    before = tuple(
        replace(m, trained=m.role == "assistant" and not out)
        for m, out in zip(messages[:-1], left_out[:-1], strict=True)
    )
    return before, messages[-1].content


def shown_part(messages: Any) -> Any:
    """The part of a conversation up to the assistant's last message; the whole where the assistant
    says nothing, or has the last word. What is no conversation stays as it is.
    """
    if not isinstance(messages, list):
        return messages
    own = [
        i for i, m in enumerate(messages) if isinstance(m, Mapping) and m.get("role") == "assistant"
    ]
    return messages[: own[-1] + 1] if own else messages


def is_blank_system(message: Any) -> bool:
    """Whether a message is a system message without text, as data writes "no system prompt"."""
    if not isinstance(message, Mapping) or message.get("role") != "system":
        return False
    content = message.get("content")
    return content is None or (isinstance(content, str) and not content.strip())


def _check_last(
    prompt: Sequence[Message], messages: Sequence[Message], where: str, field: str
) -> None:
    if not prompt or prompt[-1].role not in ("user", "tool"):
        last = (prompt or messages)[-1].role
        raise UserError(
            f"{where}: the last message of {field} is from {last!r}; a prompt ends with a user "
            "message"
        )


def _check_results(messages: Sequence[Message], field: str, *, shows: bool) -> None:
    """Results of tools stand behind a call, in a conversation that shows how to answer."""
    for i, m in enumerate(messages):
        called = i > 0 and messages[i - 1].role in ("assistant", "tool")
        if m.role == "tool" and not (called and shows):
            raise UserError(
                f"{field}[{i}] is a tool's result; only what ends with the assistant has results, "
                "behind its calls; what a model may call itself is named by --tools"
            )


def _imitated(turns: Sequence[Any], messages: Sequence[Message]) -> list[int] | None:
    """Places of the messages to imitate; None where the conversation is a prompt alone."""
    own = [i for i, m in enumerate(messages) if m.role == "assistant"]
    if chosen := [i for i in own if turns[i].get("trained")]:
        return chosen
    weighted = any(turns[i].get("weight") for i in own)
    if not own or (messages[-1].role == "user" and not weighted):
        return None
    return [i for i in own if turns[i].get("weight") != 0 and turns[i].get("trained") is not False]


def _message(value: Any, field: str, where: str) -> Message:
    if not isinstance(value, Mapping):
        raise UserError(f"{where}: {field} is {kind(value)}; write {SHOWN}")
    given = {k: v for k, v in value.items() if v is not None}
    role = given.get("role")
    thoughts = THOUGHTS if role == "assistant" else ()
    known = {"role", "content", *MARKS, *BESIDE.get(str(role), ()), *thoughts}
    # what is empty says nothing: "annotations": []
    if extra := sorted(k for k in set(given) - known if given[k] not in ([], {}, "")):
        raise UserError(
            f"{where}: {field} has {extra[0]!r}; only role and content are read, and tool_calls of "
            "the assistant"
        )
    if role not in ROLES:
        raise UserError(f"{where}: {field}.role is {describe_value(role)}; use {', '.join(ROLES)}")
    for mark in MARKS:
        _check_mark(given.get(mark), role, f"{where}: {field}.{mark}")
    content, pictures = split_content(given.get("content"))
    content = join_parts(content, where, f"{field}.content")
    calls = write_calls(given, where, field)
    thought = _thought(given, where, field) if thoughts else ""
    if calls and (content is None or not str(content).strip()):
        return Message(role=role, content=thought + check_whole(calls, where, field))
    content = read_text(content, where, f"{field}.content")
    if content.lstrip().startswith("<think>"):
        thought = ""  # the content has it already
    text = thought + "\n".join(filter(None, (content, calls)))
    return with_pictures(text, pictures, role, f"{where}: {field}")


def _thought(given: Mapping[str, Any], where: str, field: str) -> str:
    """What the assistant thought before it spoke, in the tags that it writes; "" = nothing."""
    name = next((n for n in THOUGHTS if given.get(n)), "")
    if not name:
        return ""
    return f"<think>\n{read_text(given[name], where, f'{field}.{name}').strip()}\n</think>\n\n"


def _check_mark(mark: Any, role: str, field: str) -> None:
    if mark is not None and mark not in (0, 1):
        raise UserError(f"{field} is {describe_value(mark)}; write 0 or 1")
    if mark and role != "assistant":
        raise UserError(f"{field} marks a message of the {role}; only the assistant is imitated")


def join_parts(content: Any, where: str, field: str) -> Any:
    """The text of a list of parts, {"type": "text", "text": "..."}; anything else as it is."""
    if not isinstance(content, list):
        return content
    for part in content:
        if not isinstance(part, Mapping) or not isinstance(part.get("text"), str):
            what = part.get("type", "?") if isinstance(part, Mapping) else kind(part)
            raise UserError(
                f"{where}: {field} has a part {what!r}; only text and, in messages of a prompt, pictures and sounds are read"
            )
    return "".join(part["text"] for part in content)


def read_text(value: Any, where: str, field: str) -> str:
    """Text that is not blank. Raises UserError for anything else."""
    if not isinstance(value, str):
        raise UserError(f"{where}: {field} is {kind(value)}; write text")
    if not value or value.isspace():
        raise UserError(f"{where}: {field} is empty; write it or drop the record")
    return check_whole(value, where, field)


def check_whole(text: str, where: str, field: str) -> str:
    """Text that UTF-8 can hold: an escape in JSON may name half of a character."""
    if text.isascii():
        return text
    try:
        text.encode()
    except UnicodeEncodeError as error:
        half = text[error.start].encode("unicode_escape").decode()
        raise UserError(
            f"{where}: {field} has half of a surrogate pair, {half}; write both halves or neither"
        ) from None
    return text
