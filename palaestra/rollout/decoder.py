"""The forward half of the engine: prompts and next tokens in, logits out, over a static key-value cache of slots.

Running sequences always fill slots 0..n-1, so a decode step reads views, never gathers: when one ends, the last takes its slot.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from transformers.cache_utils import Cache

from palaestra.models.load import Model


class SlotCache(Cache):
    """Keys and values [slots, heads, length, dim] per layer, written in place. Grows by doubling, up to its users' need."""

    def __init__(self) -> None:
        super().__init__(layers=[])
        self.keys: list[Tensor] = []
        self.values: list[Tensor] = []
        self.prefilled: list[tuple[Tensor, Tensor]] = []
        self.at_n: Tensor | None = None  # the position each running slot writes to; None while a prompt is read
        self.upto = 0

    def update(
        self, key_states: Tensor, value_states: Tensor, layer_idx: int, *args: Any, **kwargs: Any
    ) -> tuple[Tensor, Tensor]:
        if self.at_n is None:
            self.prefilled.append((key_states, value_states))
            return key_states, value_states
        n, slot_n = len(self.at_n), torch.arange(len(self.at_n), device=self.at_n.device)
        self.keys[layer_idx][slot_n, :, self.at_n] = key_states[:, :, 0]
        self.values[layer_idx][slot_n, :, self.at_n] = value_states[:, :, 0]
        return self.keys[layer_idx][:n, :, : self.upto], self.values[layer_idx][:n, :, : self.upto]

    def get_seq_length(self, layer_idx: int = 0) -> int:
        return 0

    def reserve(self, slots: int, length: int) -> None:
        """Room for `slots` sequences of `length` tokens; called with a prompt's keys at hand, which give the shapes."""
        have = (0, 0) if not self.keys else (self.keys[0].shape[0], self.keys[0].shape[2])
        if slots <= have[0] and length <= have[1]:
            return
        slots, length = max(slots, have[0]), max(-(-length // 64) * 64, have[1])
        for kind, which in ((self.keys, 0), (self.values, 1)):
            for layer, prefilled in enumerate(self.prefilled):
                like = prefilled[which]
                room = like.new_zeros(slots, like.shape[1], length, like.shape[3])
                if layer < len(kind):
                    old = kind[layer]
                    room[: old.shape[0], :, : old.shape[2]] = old
                    kind[layer] = room
                else:
                    kind.append(room)

    def move(self, source: int, target: int, length: int) -> None:
        for t in (*self.keys, *self.values):
            t[target, :, :length] = t[source, :, :length]


class Decoder:
    """Runs a causal model of transformers with a `SlotCache`. Logits come out in float32."""

    def __init__(self, model: Model):
        self.model = model
        self.cache = SlotCache()

    def _logits(self, hidden_ND: Tensor) -> Tensor:
        return self.model.logits(hidden_ND).float()

    @torch.no_grad()
    def prefill(self, prompts: list[tuple[int, ...]]) -> Tensor:
        """[n, V] logits after each prompt; their keys and values wait for `place`."""
        device = self.model.device
        length_n = torch.tensor([len(p) for p in prompts], device=device)
        ids = torch.zeros(len(prompts), int(length_n.max()), dtype=torch.long)
        for i, p in enumerate(prompts):
            ids[i, : len(p)] = torch.tensor(p)
        self.cache.at_n, self.cache.prefilled = None, []
        position = torch.arange(ids.shape[1], device=device)[None]
        hidden = self.model.hidden(ids.to(device), position_ids=position, past_key_values=self.cache, use_cache=True)
        return self._logits(hidden[torch.arange(len(prompts), device=device), length_n - 1])

    def place(self, prompt: int, length: int, slot: int) -> None:
        """Copies a prefilled prompt of `length` tokens into a slot."""
        for layer, (k, v) in enumerate(self.cache.prefilled):
            self.cache.keys[layer][slot, :, :length] = k[prompt, :, :length]
            self.cache.values[layer][slot, :, :length] = v[prompt, :, :length]

    @torch.no_grad()
    def step(self, token_n: Tensor, at_n: Tensor) -> Tensor:
        """[n, V] logits after token_n, which takes position at_n of slots 0..n-1."""
        upto = int(at_n.max()) + 1
        self.cache.at_n, self.cache.upto = at_n, upto
        mask = torch.arange(upto, device=at_n.device)[None] <= at_n[:, None]
        hidden = self.model.hidden(
            token_n[:, None],
            attention_mask=mask[:, None, None],
            position_ids=at_n[:, None],
            past_key_values=self.cache,
            use_cache=True,
        )
        return self._logits(hidden[:, 0])
