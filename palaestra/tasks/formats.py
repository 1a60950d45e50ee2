"""Rows as other libraries write them, with the columns that Palaestra reads.

TRL: prompt, completion, messages, chosen and rejected, label, of text or of messages ("Dataset
formats and types", huggingface.co/docs/trl/dataset_formats). verl: data_source, prompt, ability,
reward_model, extra_info (its docs/preparation/prepare_data.rst). OpenRLHF: input, output,
context_messages, chosen, rejected (its README, the flags --data.input_key and others). verifiers:
prompt or question, answer, info, task (docs.primeintellect.ai/verifiers/environments). Alpaca:
instruction, input, output; ShareGPT: conversations of from and value (LLaMA-Factory,
data/README.md).

Names are told apart in `palaestra.tasks.columns`; here values that are built otherwise become the
columns `prompt`, `messages`, `demonstration`, `chosen` and `rejected`. Messages that stand there as
text, as JSON or as Python prints them, are read as messages.
"""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from palaestra.errors import UserError
from palaestra.tasks.conversations import join_parts, read_text
from palaestra.tasks.implicit import prompt_of_pair
from palaestra.tasks.records import describe_value

# columns whose text may be messages
WRITTEN = ("prompt", "messages", "chosen", "rejected", "demonstration", "response")
# columns of replies, which are text even where they are numbers, and what makes them replies
REPLIES = ({"chosen", "rejected"}, {"demonstration"}, {"response", "right"})
BETWEEN = re.compile(r"\}\s*\n\s*\{")  # messages of a numpy array as it prints them, without commas
SHAREGPT_ROLES = {"human": "user", "gpt": "assistant", "chatgpt": "assistant"}
Fields = dict[str, Any]


def normalise(
    row: Mapping[str, Any], where: str, name: Callable[[str], str] = str
) -> Mapping[str, Any]:
    """The row with text where a list of messages stood for it, and one conversation where several
    columns hold its parts. `name`: what the user calls a column, by what it is read as.
    """
    parsed = {c: m for c in WRITTEN if (m := parse_messages(row.get(c))) is not None}
    row = {**row, **parsed} if parsed else row
    if isinstance(row.get("messages"), list) and any(map(is_sharegpt, row["messages"])):
        row = {**row, "messages": [from_sharegpt(m) for m in row["messages"]]}
    row = drop_repeated_prompt(row)
    if row.get("chosen") is not None and row.get("rejected") is not None:
        row = read_pair(dict(row), where, name)
    if isinstance(row.get("demonstration"), list):
        row = read_completion(dict(row), where)
    numbers = {
        c: str(row[c]) for use in REPLIES if use <= row.keys() for c in use if is_number(row[c])
    }
    row = {**row, **numbers} if numbers else row
    if isinstance(row.get("response"), list):
        row = {**row, "response": only_reply(row["response"], where, name("response"))}
    return row


def is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def parse_messages(text: Any) -> list[Any] | None:
    """The messages that a text holds, as JSON or as Python prints them; None = it holds none."""
    if not isinstance(text, str) or text.lstrip()[:1] not in ("[", "{"):
        return None
    if "role" not in text and "from" not in text:  # quick, and true of most texts
        return None
    messages = _parse(text)
    talk = [messages] if isinstance(messages, Mapping) else messages
    return talk if isinstance(talk, list) and talk and all(map(is_message, talk)) else None


def _parse(text: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        pass
    for literal in (text.strip(), BETWEEN.sub("}, {", text.strip())):
        try:
            return ast.literal_eval(literal)
        except (ValueError, SyntaxError, TypeError, RecursionError, MemoryError):
            continue
    return None


def is_message(value: Any) -> bool:
    """Whether a value looks like a message of a conversation."""
    if not isinstance(value, Mapping):
        return False
    keys = {"content", "tool_calls"} if "role" in value else {"value"}
    return ("role" in value or "from" in value) and bool(keys & value.keys())


def drop_repeated_prompt(row: Mapping[str, Any]) -> Mapping[str, Any]:
    """The row without a prompt that is text and also stands among its messages, as in data of
    Zephyr.
    """
    talk, prompt = row.get("messages"), row.get("prompt")
    if not isinstance(talk, list) or not isinstance(prompt, str):
        return row
    if all(m.get("content") != prompt for m in talk if isinstance(m, Mapping)):
        return row
    return {k: v for k, v in row.items() if k != "prompt"}


def is_sharegpt(message: Any) -> bool:
    return isinstance(message, Mapping) and "from" in message and "role" not in message


def from_sharegpt(message: Any) -> Any:
    """A message as others write it, {"role": ..., "content": ...}."""
    if not is_sharegpt(message):
        return message
    rest = {k: v for k, v in message.items() if k not in ("from", "value")}
    role = SHAREGPT_ROLES.get(message["from"], message["from"])
    return {"role": role, "content": message.get("value"), **rest}


def read_pair(row: Fields, where: str, name: Callable[[str], str]) -> Fields:
    """A pair whose prompt stands in a column, or is what both conversations, or both texts, begin
    with.
    """
    chosen, rejected = row["chosen"], row["rejected"]
    first, second = name("chosen"), name("rejected")
    if isinstance(chosen, Mapping) and isinstance(rejected, Mapping):  # one message each
        chosen, rejected = [chosen], [rejected]
    if isinstance(chosen, list) != isinstance(rejected, list):
        raise UserError(f"{where}: one of {first} and {second} is a list of messages, one is not")
    asked = row.get("prompt") is not None or row.get("messages") is not None
    if isinstance(chosen, list):
        return read_conversations(row, chosen, rejected, where, name)
    if not asked and isinstance(chosen, str) and isinstance(rejected, str):
        prompt = prompt_of_pair(chosen, rejected)
        if not prompt.strip():
            alike = common(chosen, rejected)
            how = "begin alike within one word" if alike else "do not begin alike"
            raise UserError(
                f"{where}: no 'prompt', and {first} and {second} {how}; add the "
                "prompt, or say which column it is, --columns COLUMN=prompt"
            )
        row |= {"prompt": prompt, "chosen": chosen[len(prompt) :]}
        row["rejected"] = rejected[len(prompt) :]
        read_text(row["chosen"], where, f"what {first} has beyond {second}")
        read_text(row["rejected"], where, f"what {second} has beyond {first}")
    return row


def read_conversations(
    row: Fields,
    chosen: Sequence[Any],
    rejected: Sequence[Any],
    where: str,
    name: Callable[[str], str],
) -> Fields:
    """A pair of conversations, or of replies to a prompt in another column. Messages beside them
    that go on from the same prompt are what is imitated.
    """
    first, second = name("chosen"), name("rejected")
    chosen, rejected = ([from_sharegpt(m) for m in talk] for talk in (chosen, rejected))
    n = common(chosen, rejected)
    if n and n == min(len(chosen), len(rejected)):
        raise UserError(f"{where}: {first} and {second} do not differ; drop the record")
    if n:  # whole conversations; a column `prompt` repeats what they begin with
        check_same_prompt(row.get("prompt"), chosen[:n], where)
        row.pop("prompt", None)
        talk = row.get("messages")
        if talk is None:
            row["messages"] = chosen[:n]
        elif not isinstance(talk, list) or plain(talk[:n]) != plain(chosen[:n]):
            raise UserError(
                f"{where}: {name('messages')} begins with other messages than {first} and "
                f"{second}; keep one of them"
            )
    row["chosen"] = only_reply(chosen[n:], where, first)
    row["rejected"] = only_reply(rejected[n:], where, second)
    return row


def plain(talk: Sequence[Any]) -> list[Any]:
    """Roles and contents of messages, by which they are compared."""
    return [(m.get("role"), m.get("content")) if isinstance(m, Mapping) else m for m in talk]


def check_same_prompt(prompt: Any, shared: Sequence[Any], where: str) -> None:
    """A prompt that is text must be among the messages that both conversations begin with."""
    texts = [m.get("content") for m in shared if isinstance(m, Mapping)]
    if isinstance(prompt, str) and prompt not in texts:
        raise UserError(
            f"{where}: chosen and rejected begin with other messages than the prompt; keep one"
        )


def common(a: Sequence[Any], b: Sequence[Any]) -> int:
    """How far two sequences are the same."""
    n = min(len(a), len(b))
    return next((i for i in range(n) if a[i] != b[i]), n)


def only_reply(messages: Any, where: str, field: str) -> str:
    """The text of a list that is one message of the assistant."""
    one = messages[0] if isinstance(messages, list) and len(messages) == 1 else None
    if not isinstance(one, Mapping) or one.get("role") != "assistant":
        raise UserError(
            f"{where}: {field} is {describe_value(messages)}; write text, or one message of the "
            "assistant after the prompt"
        )
    return read_text(join_parts(one.get("content"), where, field), where, field)


def read_completion(row: Fields, where: str) -> Fields:
    """A prompt and messages that go on from it, as one conversation: only these are imitated."""
    if row.get("messages") is not None:
        raise UserError(f"{where}: both 'messages' and a completion of messages; keep one")
    prompt, completion = row.pop("prompt", None), row.pop("demonstration")
    before = prompt if isinstance(prompt, list) else [{"role": "user", "content": prompt}]
    own = [
        {**m, "trained": True} if isinstance(m, Mapping) and m.get("role") == "assistant" else m
        for m in completion
    ]
    return {**row, "messages": [*before, *own]}
