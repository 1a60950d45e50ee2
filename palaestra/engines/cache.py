"""A static cache of keys and values: slots of equal length, written in place."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor
from transformers.cache_utils import Cache


class SlotCache(Cache):
    """Keys and values [slots, heads, length, dim] per layer, written in place; with router replay also
    experts [slots, 1, length, K] per router.
    """

    def __init__(self) -> None:
        super().__init__(layers=[])
        self.keys: list[Tensor] = []
        self.values: list[Tensor] = []
        self.experts: list[Tensor] = []
        self.slots, self.length = 0, 0
        self.place(0, torch.zeros(0, 0, dtype=torch.long), 0)

    def place(self, first: int, at_nq: Tensor, upto: int, slot_n: Tensor | None = None) -> None:
        """Where the next update writes: slots first, first + 1, ..., or those of `slot_n`, in which
        one may come several times, each at its q positions. Of these slots `upto` columns are seen.
        """
        self.first, self.at_nq, self.upto, self.slot_n = first, at_nq, upto, slot_n
        self._lines: dict[int, Tensor] = {}

    def lines(self, heads: int) -> Tensor:
        """[n q heads] the lines of a layer's memory, seen as [slots heads length, dim], that the
        update writes.
        """
        if heads not in self._lines:
            n, device = len(self.at_nq), self.at_nq.device
            slot_n = self.slot_n
            if slot_n is None:
                slot_n = torch.arange(self.first, self.first + n, device=device)
            head_nh = slot_n[:, None] * heads + torch.arange(heads, device=device)
            lines_nqh = head_nh[:, None] * self.length + self.at_nq[:, :, None]
            self._lines[heads] = lines_nqh.flatten()
        return self._lines[heads]

    def update(
        self, key_states: Tensor, value_states: Tensor, layer_idx: int, *args: Any, **kwargs: Any
    ) -> tuple[Tensor, Tensor]:
        """Writes [n, heads, q, dim] and returns all that these slots hold, `upto` long."""
        n = len(self.at_nq)
        seen: list[Tensor] = []
        for rooms, new in ((self.keys, key_states), (self.values, value_states)):
            if len(rooms) == layer_idx:
                rooms.append(new.new_zeros(self.slots, new.shape[1], self.length, new.shape[3]))
            lines = self.lines(new.shape[1])
            rooms[layer_idx].view(-1, new.shape[3])[lines] = new.transpose(1, 2).flatten(0, 2)
            if self.slot_n is None:
                seen.append(rooms[layer_idx][self.first : self.first + n, :, : self.upto])
            else:
                seen.append(rooms[layer_idx][:, :, : self.upto].index_select(0, self.slot_n))
        return seen[0], seen[1]

    def keep_experts(self, router: int, chosen_NK: Tensor, dtype: torch.dtype) -> None:
        """Writes what a router chose for the n q tokens of the pass, whose places are as for keys."""
        if len(self.experts) == router:
            blank = (self.slots, 1, self.length, chosen_NK.shape[1])
            self.experts.append(chosen_NK.new_zeros(blank, dtype=dtype))
        room = self.experts[router]
        room.view(-1, room.shape[3])[self.lines(1)] = chosen_NK.to(dtype)

    def experts_of(self, slot: int, n: int) -> np.ndarray:
        """[n, L, K] what the routers chose for the first n tokens of a slot."""
        return torch.stack([room[slot, 0, :n] for room in self.experts], 1).cpu().numpy()

    def get_seq_length(self, layer_idx: int = 0) -> int:
        return 0

    def reserve(self, slots: int, length: int, most: int) -> None:
        """Room for `slots` sequences of `length` tokens; what is in the first `most`
        slots stays.
        """
        if slots <= self.slots and length <= self.length:
            return
        old_slots, old_length = self.slots, self.length
        self.slots, self.length = (
            max(slots, min(old_slots, most)),
            round_up(max(length, old_length)),
        )
        for rooms in (self.keys, self.values, self.experts):
            for layer, old in enumerate(rooms):
                rooms[layer] = old.new_zeros(self.slots, old.shape[1], self.length, old.shape[3])
                rooms[layer][:old_slots, :, :old_length] = old[: self.slots]

    def copy(self, target: Sequence[int], source: Sequence[int], upto: int) -> None:
        """Slots `target` become copies of the slots `source` as they are before the call, `upto`
        tokens long.
        """
        if not self.keys:
            return
        t, s = torch.tensor([target, source]).to(self.keys[0].device)
        for room in (*self.keys, *self.values, *self.experts):
            room[t, :, :upto] = room[s, :, :upto]


def round_up(length: int) -> int:
    """Slots grow in blocks of 64 tokens."""
    return -(-length // 64) * 64
