"""Chat templates as text: what they write around the contents of messages."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from jinja2 import TemplateError
from transformers import PreTrainedTokenizerBase

from palaestra.types import ToolSchema

PLAIN = (  # for a tokenizer without a template: contents on lines, replies closed by the end token
    "{{ bos_token or '' }}{% for message in messages %}{{ message['content'] }}"
    "{{ (eos_token or '') if message['role'] == 'assistant' else '' }}{{ '\n' }}{% endfor %}"
)
REFUSALS = (TemplateError, TypeError, ValueError, KeyError)  # how templates say no


def render(
    tokenizer: PreTrainedTokenizerBase,
    messages: Sequence[Mapping[str, Any]],
    *,
    speak: bool,
    tools: Sequence[ToolSchema] = (),
) -> str:
    """The conversation as text; with `speak`, up to where the next reply begins. Raises one of
    REFUSALS.
    """
    template = None if tokenizer.chat_template else PLAIN
    talk = [dict(m) for m in messages]
    return str(
        tokenizer.apply_chat_template(
            talk,
            tools=[t.json() for t in tools] or None,
            chat_template=template,
            add_generation_prompt=speak,
            tokenize=False,
        )
    )


def specials(tokenizer: PreTrainedTokenizerBase) -> dict[str, int]:
    """Ids of the tokens that only a template or a policy may write."""
    return {t.content: i for i, t in tokenizer.added_tokens_decoder.items() if t.special}


def end_of_turn(tokenizer: Any) -> int | None:
    """The token that closes a reply: the first special after its content in the template, else the
    tokenizer's eos.
    """
    slot = "~reply~"
    try:
        text = render(
            tokenizer,
            [{"role": "user", "content": "x"}, {"role": "assistant", "content": slot}],
            speak=False,
        )
    except REFUSALS:
        return tokenizer.eos_token_id
    tail = text.rpartition(slot)[2]
    found = [(tail.find(s), i) for s, i in specials(tokenizer).items() if s in tail]
    return min(found)[1] if found else tokenizer.eos_token_id
