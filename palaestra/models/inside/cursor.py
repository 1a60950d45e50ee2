"""A place in a text from which a model goes on: the law of the next token, one more token, another
branch, and the past itself. B = rows, T = their tokens, V = vocabulary.

A cursor is a value: `append` and `fork` give others, and nobody changes what a cursor holds. Its
last token stands outside of its past, so the law of the next token is a function of the past, and
has a gradient to it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import TypeAlias

import torch
from torch import Tensor
from transformers.cache_utils import DynamicCache, DynamicLayer

from palaestra.errors import UserError
from palaestra.models.model import Model
from palaestra.pictures import need_text_alone

Past: TypeAlias = tuple[Tensor, ...]  # keys and values of a layer in turn, [B, heads, T - 1, dim]


@dataclass(frozen=True, eq=False)
class Cursor:
    """Rows of one length, each at its last token.

    No gradient reaches the weights by way of `append`; of `logits` one does where the past requires
    one, see `on`.

    Args:
        model: whose law it is.
        ids_BT: the tokens of each row, at least one.
        past: what the model holds of all tokens but the last.
        count: told how many tokens a forward pass computed, of all rows, each time.
    """

    model: Model
    ids_BT: Tensor
    past: Past
    count: Callable[[int], None] | None = None
    _read: list[tuple[Tensor, Past]] = field(default_factory=list, init=False, repr=False)

    @classmethod
    def start(
        cls, model: Model, ids: Sequence[int], count: Callable[[int], None] | None = None
    ) -> Cursor:
        """One row, of the given tokens.

        Raises UserError where there is none or one is a place of a picture, and for a model whose
        memory is not keys and values of every token.
        """
        if not len(ids):
            raise UserError("a cursor stands at a token, and there is none")
        need_text_alone(ids, "a cursor reads text alone")
        ids_BT = torch.tensor([list(ids)], device=model.device)
        cursor = cls(model, ids_BT[:, -1:], (), count)
        if len(ids) > 1:
            with torch.no_grad():
                cursor = replace(cursor, past=cursor._pass(ids_BT[:, :-1], ())[1])
        return replace(cursor, ids_BT=ids_BT)

    def __len__(self) -> int:
        """T."""
        return self.ids_BT.shape[1]

    @property
    def rows(self) -> int:
        """B."""
        return self.ids_BT.shape[0]

    def logits(self) -> Tensor:
        """[B, V] in float32 (float64 of a model in that), of the token that comes next. With a
        graph to the past where this requires a gradient.
        """
        return self._forward()[0]

    def append(self, token_B: Tensor | Sequence[int]) -> Cursor:
        """The same rows, each one token longer.

        Raises UserError where the context is full.
        """
        if len(self) >= self.model.context:
            raise UserError(f"the context of {self.model.context} tokens is full")
        token_B = torch.as_tensor(token_B, device=self.ids_BT.device)
        grown = tuple(x.detach() for x in self._forward()[1])  # a past has no history of its own
        return replace(self, ids_BT=torch.cat([self.ids_BT, token_B[:, None]], 1), past=grown)

    def fork(self, rows: Sequence[int]) -> Cursor:
        """A cursor of the named rows, in this order; a row may be named several times."""
        index = torch.tensor(list(rows), dtype=torch.long, device=self.ids_BT.device)
        other = replace(self, ids_BT=self.ids_BT[index], past=tuple(x[index] for x in self.past))
        if self._read and not self._read[0][0].requires_grad:
            logits_BV, grown = self._read[0]
            other._read.append((logits_BV[index], tuple(x[index] for x in grown)))
        return other

    def on(self, past: Past) -> Cursor:
        """The same tokens on another past, e.g. one that was moved a little, or that requires a
        gradient. It may have a graph of its own.

        Raises ValueError where it has not the shape of this one's.
        """
        if [x.shape for x in past] != [x.shape for x in self.past]:
            raise ValueError("another past has the shape of the one it stands for")
        return replace(self, past=tuple(past))

    def _forward(self) -> tuple[Tensor, Past]:
        """Logits, and the past with the last token in it: computed once."""
        if not self._read:
            wanted = any(x.requires_grad for x in self.past)
            with torch.set_grad_enabled(wanted):
                hidden_BTD, grown = self._pass(self.ids_BT[:, -1:], self.past)
                logits_BV = self.model.logits(hidden_BTD[:, -1])
            dtype = torch.promote_types(logits_BV.dtype, torch.float32)
            self._read.append((logits_BV.to(dtype), grown))
        return self._read[0]

    def _pass(self, ids_BT: Tensor, past: Past) -> tuple[Tensor, Past]:
        """Hidden states [B, T, D] of tokens after a past, and the past that these make."""
        pairs = list(zip(past[::2], past[1::2], strict=True))
        cache = DynamicCache(pairs) if pairs else DynamicCache()
        if self.count is not None:
            self.count(ids_BT.numel())
        hidden_BTD = self.model.hidden(ids_BT, cache=cache)
        layers = [x for x in cache.layers if isinstance(x, DynamicLayer)]
        kept = [x.keys for x in layers if x.keys is not None]
        if len(kept) != len(self.model.layers):
            raise UserError(f"{self.model.name} has no keys and values to go on from")
        return hidden_BTD, tuple(t for x in layers for t in (x.keys, x.values) if t is not None)
