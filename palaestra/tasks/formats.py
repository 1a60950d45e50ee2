"""Rows as other libraries write them, with the columns that Palaestra reads.

TRL: prompt, completion, messages, chosen and rejected, label, of text or of messages ("Dataset
formats and types", huggingface.co/docs/trl/dataset_formats). verl: data_source, prompt, ability,
reward_model, extra_info (its docs/preparation/prepare_data.rst). OpenRLHF: input, output,
context_messages, chosen, rejected (its README, the flags --data.input_key and others). verifiers:
prompt or question, answer, info, task (docs.primeintellect.ai/verifiers/environments). Alpaca:
instruction, input, output; ShareGPT: conversations of from and value (LLaMA-Factory,
data/README.md).

Names are told apart in `palaestra.tasks.columns`; here values that are built otherwise become the
columns `prompt`, `messages`, `demonstration`, `chosen` and `rejected`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from palaestra.errors import UserError
from palaestra.tasks.conversations import join_parts, read_text
from palaestra.tasks.records import describe_value

SHAREGPT_ROLES = {"human": "user", "gpt": "assistant", "chatgpt": "assistant"}
Fields = dict[str, Any]


def normalise(
    row: Mapping[str, Any], where: str, name: Callable[[str], str] = str
) -> Mapping[str, Any]:
    """The row with text where a list of messages stood for it, and one conversation where several
    columns hold its parts. `name`: what the user calls a column, by what it is read as.
    """
    if isinstance(row.get("messages"), list) and any(map(is_sharegpt, row["messages"])):
        row = {**row, "messages": [from_sharegpt(m) for m in row["messages"]]}
    if row.get("chosen") is not None and row.get("rejected") is not None:
        row = read_pair(dict(row), where, name)
    if isinstance(row.get("demonstration"), list):
        row = read_completion(dict(row), where)
    if isinstance(row.get("response"), list):
        row = {**row, "response": only_reply(row["response"], where, name("response"))}
    return row


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
    if isinstance(chosen, list) != isinstance(rejected, list):
        raise UserError(f"{where}: one of {first} and {second} is a list of messages, one is not")
    asked = row.get("prompt") is not None or row.get("messages") is not None
    if isinstance(chosen, list):
        chosen, rejected = ([from_sharegpt(m) for m in talk] for talk in (chosen, rejected))
        n = common(chosen, rejected)
        if n and n == min(len(chosen), len(rejected)):
            raise UserError(f"{where}: {first} and {second} do not differ; drop the record")
        if n:  # whole conversations; a column `prompt` repeats what they begin with
            check_same_prompt(row.get("prompt"), chosen[:n], where)
            row.pop("prompt", None)
            row["messages"] = chosen[:n]
        row["chosen"] = only_reply(chosen[n:], where, first)
        row["rejected"] = only_reply(rejected[n:], where, second)
    elif not asked and isinstance(chosen, str) and isinstance(rejected, str):
        n = common(chosen, rejected)
        start = chosen[: n if n in (len(chosen), len(rejected)) else chosen.rfind(" ", 0, n) + 1]
        prompt = start.rstrip()
        if not prompt:
            raise UserError(
                f"{where}: no 'prompt', and {first} and {second} do not begin alike; add the "
                "prompt, or say which column it is, --columns COLUMN=prompt"
            )
        row |= {"prompt": prompt, "chosen": chosen[len(prompt) :]}
        row["rejected"] = rejected[len(prompt) :]
        read_text(row["chosen"], where, f"what {first} has beyond {second}")
        read_text(row["rejected"], where, f"what {second} has beyond {first}")
    return row


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
    prompt, said = row.pop("prompt", None), row.pop("demonstration")
    before = prompt if isinstance(prompt, list) else [{"role": "user", "content": prompt}]
    own = [
        {**m, "trained": True} if isinstance(m, Mapping) and m.get("role") == "assistant" else m
        for m in said
    ]
    return {**row, "messages": [*before, *own]}
