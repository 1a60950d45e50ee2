"""The tokenizer of the tiny model: bytes, and seven specials. A token's id is its byte."""

from __future__ import annotations

from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast

SPECIALS = (
    "<|pad|>",
    "<|begin|>",
    "<|end|>",
    "<|system|>",
    "<|user|>",
    "<|assistant|>",
    "<|tool|>",
)
PAD, BEGIN, END, SYSTEM, USER, ASSISTANT, TOOL = range(256, 256 + len(SPECIALS))
TEMPLATE = (
    "<|begin|>{% for message in messages %}<|{{ message['role'] }}|>{{ message['content'] "
    "}}<|end|>{% endfor %}{% if add_generation_prompt %}<|assistant|>{% endif %}"
)


def printable() -> dict[int, str]:
    """The character that stands for each byte in a byte-level vocabulary (GPT-2's table)."""
    shown = [*range(33, 127), *range(161, 173), *range(174, 256)]
    hidden = [b for b in range(256) if b not in shown]
    return {b: chr(b) for b in shown} | {b: chr(256 + n) for n, b in enumerate(hidden)}


def build() -> PreTrainedTokenizerFast:
    """Byte-level BPE without merges."""
    core = Tokenizer(models.BPE(vocab={c: b for b, c in printable().items()}, merges=[]))
    core.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    core.decoder = decoders.ByteLevel()
    core.add_special_tokens(list(SPECIALS))
    return PreTrainedTokenizerFast(
        tokenizer_object=core,
        bos_token="<|begin|>",
        eos_token="<|end|>",
        pad_token="<|pad|>",
        additional_special_tokens=list(SPECIALS[3:]),
        chat_template=TEMPLATE,
        clean_up_tokenization_spaces=False,
        model_max_length=512,
    )
