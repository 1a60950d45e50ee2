"""Rows as other libraries write them, with the columns that Palaestra reads.

TRL: prompt, completion, messages, chosen and rejected, label, of text or of messages ("Dataset
formats and types", huggingface.co/docs/trl/dataset_formats). verl: data_source, prompt, ability,
reward_model, extra_info (its docs/preparation/prepare_data.rst). OpenRLHF: input, output,
context_messages, chosen, rejected (its README, the flags --data.input_key and others). verifiers:
prompt or question, answer, info, task (docs.primeintellect.ai/verifiers/environments). Alpaca:
instruction, input, output; ShareGPT: conversations of from and value (LLaMA-Factory,
data/README.md); R1-V and Video-R1: problem, options, solution, an answer in <answer></answer>.

Names are told apart in `palaestra.tasks.columns`; here values that are built otherwise become the
columns `prompt`, `messages`, `demonstration`, `chosen` and `rejected`. Messages that stand there as
text, as JSON or as Python prints them, are read as messages.
"""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from typing import Any

from palaestra.errors import UserError
from palaestra.tasks.conversations import join_parts, read_reply, read_text
from palaestra.tasks.implicit import prompt_of_pair
from palaestra.tasks.records import describe_value
from palaestra.tasks.tool_data import write_calls

# columns whose text may be messages
WRITTEN = ("prompt", "messages", "chosen", "rejected", "demonstration", "response")
# columns of replies, which are text even where they are numbers, and what makes them replies
REPLIES = ({"chosen", "rejected"}, {"demonstration"}, {"response", "right"})
BETWEEN = re.compile(r"\}\s*\n\s*\{")  # messages of a numpy array as it prints them, without commas
SHAREGPT_ROLES = {"human": "user", "gpt": "assistant", "chatgpt": "assistant"}
OTHER_ROLES = {  # of LLaMA-Factory, ms-swift, Llama, Gemini and OpenAI's later models
    "model": "assistant", "developer": "system", "observation": "tool", "tool_response": "tool",
    "function_response": "tool", "function": "tool", "ipython": "tool",
}  # fmt: skip
CALL_ROLES = ("function_call", "tool_call")  # messages of the assistant that hold a call as JSON
VERDICTS = {"true": True, "1": True, "1.0": True, "false": False, "0": False, "0.0": False,
            "-1": False, "-1.0": False}  # fmt: skip
# an answer in the form of a reply, as R1-V, Video-R1 and HumanOmniV2 write their `solution`
TAGGED = re.compile(r"\s*<answer>((?:(?!</?answer>).)*)</answer>\s*", re.DOTALL)
BEFORE = "_before"  # of a column with the messages of a reply before its last one
KEPT = ("role", "content", "trained", "name", "call_id")  # of these
Fields = dict[str, Any]


def normalise(
    row: Mapping[str, Any], where: str, name: Callable[[str], str] = str
) -> Mapping[str, Any]:
    """The row with text where a list of messages stood for it, and one conversation where several
    columns hold its parts. `name`: what the user calls a column, by what it is read as.
    """
    parsed = {c: m for c in WRITTEN if (m := parse_messages(row.get(c))) is not None}
    row = {**row, **parsed} if parsed else row
    talks = ((c, row.get(c)) for c in WRITTEN)
    foreign = {
        c: [standard_message(m) for m in talk]
        for c, talk in talks
        if isinstance(talk, list) and any(map(is_foreign, talk))
    }
    row = {**row, **foreign} if foreign else row
    row = drop_repeated_prompt(row)
    row = split_verdict(row, where, name)
    if row.get("chosen") is not None and row.get("rejected") is not None:
        row = read_pair(dict(row), where, name)
    if isinstance(row.get("demonstration"), list):
        row = read_completion(dict(row), where)
    numbers = {
        c: str(row[c])
        for use in REPLIES
        if use <= row.keys()
        for c in use - {"right"}
        if is_number(row[c])
    }
    row = {**row, **numbers} if numbers else row
    if isinstance(row.get("response"), list):
        row = {**row, **reply_fields("response", row["response"], 0, where, name("response"))}
    answer = row.get("answer")
    if isinstance(answer, str) and (tagged := TAGGED.fullmatch(answer)):
        row = {**row, "answer": tagged[1].strip()}
    return row


def split_verdict(
    row: Mapping[str, Any], where: str, name: Callable[[str], str]
) -> Mapping[str, Any]:
    """The row with `right` as true or false, where it judges a recorded answer: that is the column
    `response`, else the last message of the assistant in `messages`.
    """
    if row.get("right") is None:
        return row
    talk = row.get("messages")
    if row.get("response") is None and isinstance(talk, list) and ends_with_reply(talk):
        row = {**row, "messages": talk[:-1], "response": talk[-1:]}
    if row.get("response") is None:
        return row
    verdict = read_verdict(row["right"])
    if verdict is None:
        raise UserError(
            f"{where}: {name('right')} is {describe_value(row['right'])}; write true or false"
        )
    return {**row, "right": verdict}


def ends_with_reply(talk: Any) -> bool:
    """Whether a value is a conversation in which the assistant has the last word."""
    last = talk[-1] if isinstance(talk, list) and talk else None
    return isinstance(last, Mapping) and standard_message(last).get("role") == "assistant"


def read_verdict(value: Any) -> bool | None:
    """What a label says of an answer: true, 1 or text of these, as tables have it; false, 0 or -1.
    None = none of them.
    """
    if isinstance(value, str | int | float):
        return VERDICTS.get(str(value).strip().casefold())
    return None


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


def is_foreign(message: Any) -> bool:
    """Whether a message has other names than `role` and `content`, or another role than these
    here.
    """
    if not isinstance(message, Mapping):
        return False
    role = message.get("role", message.get("from"))
    named = "role" not in message or ("value" in message and "content" not in message)
    return role is not None and (named or role in (*OTHER_ROLES, *CALL_ROLES))


def standard_message(message: Any) -> Any:
    """A message as {"role": ..., "content": ...}, from ShareGPT's {"from": ..., "value": ...} and
    with the roles of others. A call that is a message of its own becomes one of the assistant; text
    that is no JSON of a call stays its content.
    """
    if not is_foreign(message):
        return message
    role = message.get("role", message.get("from"))
    role = role if "role" in message else SHAREGPT_ROLES.get(str(role), role)
    content = message.get("content", message.get("value"))
    rest = {k: v for k, v in message.items() if k not in ("role", "from", "content", "value")}
    if role not in CALL_ROLES:
        return {"role": OTHER_ROLES.get(str(role), role), "content": content, **rest}
    try:
        calls = json.loads(content) if isinstance(content, str) else content
    except (ValueError, RecursionError):
        return {"role": "assistant", "content": content, **rest}
    calls = calls if isinstance(calls, list) else [calls]
    return {"role": "assistant", "content": None, "tool_calls": calls, **rest}


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

    The prompt of whole conversations is what both begin with, up to the last user or result of a tool;
    what both say after it belongs to each reply, and is not trained.
    """
    first, second = name("chosen"), name("rejected")
    chosen, rejected = ([standard_message(m) for m in talk] for talk in (chosen, rejected))
    n = alike = common(chosen, rejected)
    if n and n == min(len(chosen), len(rejected)):
        if len(chosen) == len(rejected):
            raise UserError(f"{where}: {first} and {second} do not differ; drop the record")
        longer, shorter = (first, second) if len(chosen) > n else (second, first)
        raise UserError(
            f"{where}: {longer} goes on where {shorter} ends, so they have no replies to the same "
            "messages; write another reply into one, or drop the record"
        )
    if n:
        asked = row.get("prompt") is not None or row.get("messages") is not None
        begins = isinstance(chosen[0], Mapping) and chosen[0].get("role") == "assistant"
        n = 0 if asked and begins else prompt_length(chosen[:n])
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
    row |= reply_fields("chosen", chosen[n:], alike - n, where, first)
    return row | reply_fields("rejected", rejected[n:], alike - n, where, second)


def prompt_length(talk: Sequence[Any]) -> int:
    """How many of the messages that two conversations begin with are their prompt: those up to the
    last user.
    """
    roles = [m.get("role") if isinstance(m, Mapping) else None for m in talk]
    return max((i + 1 for i, role in enumerate(roles) if role == "user"), default=len(talk))


def reply_fields(use: str, messages: Any, shared: int, where: str, field: str) -> Fields:
    """The column of a reply, the text of its last message, and where it has several messages those
    before as the column USE_before.
    """
    if not isinstance(messages, list) or len(messages) < 2:
        return {use: only_reply(messages, where, field)}
    before, text = read_reply(messages, shared, where, field)
    talk = [{k: v for k, v in asdict(m).items() if k in KEPT and v} for m in before]
    return {use: text, f"{use}{BEFORE}": talk}


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
            f"{where}: {field} is {describe_value(messages)}; write text, or messages after the prompt "
            "that end with the assistant"
        )
    content, calls = join_parts(one.get("content"), where, field), write_calls(one, where, field)
    if calls and (content is None or not str(content).strip()):
        return calls
    return "\n".join(filter(None, (read_text(content, where, field), calls)))


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
