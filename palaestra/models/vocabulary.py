"""Whether two models mean the same by a token's id."""

from __future__ import annotations

from typing import Any, Protocol

from transformers import PreTrainedTokenizerBase

from palaestra.errors import UserError

LEAST = 0.9  # of the ordinary tokens that have to be common


class Tokenizes(Protocol):
    """A model, loaded or stored, with its tokenizer."""

    tokenizer: PreTrainedTokenizerBase
    source: str


def check_vocabulary(base: Tokenizes, other: Tokenizes, remedy: str) -> list[str]:
    """The special tokens that the models do not share.

    Args:
        remedy: what to do about another vocabulary.

    Raises UserError where ordinary tokens have other ids, or where fewer than `LEAST` of them are
    common.
    """
    own, theirs = ordinary_tokens(base), ordinary_tokens(other)
    common = own.keys() & theirs.keys()
    if any(own[t] != theirs[t] for t in common) or len(common) < LEAST * max(len(own), len(theirs)):
        raise UserError(f"{other.source} has another vocabulary than {base.source}; {remedy}")
    tokenizers: list[Any] = [base.tokenizer, other.tokenizer]
    special = [t.get_added_vocab() for t in tokenizers]
    return sorted({t for a, b in (special, special[::-1]) for t in a if a[t] != b.get(t)})


def ordinary_tokens(model: Tokenizes) -> dict[str, int]:
    """The ids of tokens that were not added to the vocabulary afterwards."""
    tokenizer: Any = model.tokenizer
    added = tokenizer.get_added_vocab()
    return {t: i for t, i in tokenizer.get_vocab().items() if t not in added}
