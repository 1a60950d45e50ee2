"""Whether two models mean the same by a token's id; tokens that are added to a model."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import torch
from transformers import AddedToken, PreTrainedTokenizerBase

from palaestra.errors import UserError
from palaestra.types import Key, rng_of

LEAST = 0.9  # of the ordinary tokens that have to be common
NOISE = 0.25  # of the spread of a table of embeddings, in the rows of tokens that are added


class Tokenizes(Protocol):
    """A model, loaded or stored, with its tokenizer."""

    @property
    def tokenizer(self) -> PreTrainedTokenizerBase: ...
    @property
    def source(self) -> str: ...


@dataclass(frozen=True)
class TokenSpelling:
    """A tokenizer without its model, which runs elsewhere."""

    tokenizer: PreTrainedTokenizerBase
    source: str


class GrowsTokens(Protocol):
    """A loaded model, whose tables of embeddings can become longer."""

    tokenizer: PreTrainedTokenizerBase

    @property
    def source(self) -> str: ...
    @property
    def causal(self) -> Any: ...


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


@torch.no_grad()
def add_tokens(model: GrowsTokens, tokens: Sequence[str], key: Key) -> None:
    """Ordinary tokens behind those that a model has, in its tokenizer and its weights. Their rows are
    the mean of the others, so that none is likelier than these, and a quarter of their spread drawn
    from the key, so that no two are alike.

    Raises UserError for a token that is there already.
    """
    # copies of a model share their tokenizer, and this one alone gets longer
    tokenizer: Any = copy.deepcopy(model.tokenizer)
    known = tokenizer.get_vocab()
    if odd := [t for t in tokens if t in known]:
        raise UserError(
            f"{model.source} has the token {odd[0]!r} already; start from a model without"
        )
    tokenizer.add_tokens([AddedToken(t, normalized=False, special=False) for t in tokens])
    causal = model.causal
    before = causal.get_input_embeddings().weight
    n, width = len(known), before.shape[1]
    drawn = rng_of((*key, "tokens")).standard_normal((len(tokens), width))
    mean, spread = before[:n].mean(0), float(before[:n].float().std())
    rows = mean + torch.from_numpy(NOISE * spread * drawn).to(before)
    if len(tokenizer) > before.shape[0]:
        causal.resize_token_embeddings(len(tokenizer), mean_resizing=False)
    outer = causal.get_output_embeddings()
    for table in (causal.get_input_embeddings(), *([] if outer is None else [outer])):
        table.weight[n : n + len(tokens)] = rows
    model.tokenizer = tokenizer
