"""The forward half of the engine: tokens in, logits out, over a static key-value cache of slots.

Running sequences always fill slots 0..n-1, so a decode step reads views, never gathers: when one
ends, the last takes its slot.

In float32 on a processor a sequence gets the same bits whoever else is in the pass: products and
attention have as many rows and queries as is measured that it takes (`engines.rows`, `.attention`),
columns are added in blocks (`models.blockwise`), and what is too many is masked or thrown away. In other precisions,
on GPUs and in models with attention of their own kind it need not.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cached_property

import numpy as np
import torch
from torch import Tensor

from palaestra.engines.attention import FEW, tiling_for
from palaestra.engines.cache import SlotCache, round_up
from palaestra.engines.compact import Compact
from palaestra.engines.formats import Format
from palaestra.engines.graphs import Graphs, cuda_graphs
from palaestra.engines.linears import Reordered, in_measured_rows
from palaestra.engines.rows import ANY, RowRule, rule_for
from palaestra.models.blockwise import WHOLE, Tiling
from palaestra.models.eyes import Seen
from palaestra.models.load import Model
from palaestra.models.routing import recording, routers_to_replay
from palaestra.models.tower import mutual

PREFILL = 8192  # padded tokens of prompts that one forward pass may hold
SCORED = 256  # tokens whose logits are held at a time, where all of a tail are looked at


class Decoder:
    """Runs a causal model of transformers with a `SlotCache`. Logits come out in float32.

    Args:
        dtype: of the copies of linear layers' weights that are multiplied; "" = the model's.
        record: whether the cache keeps which experts the routers of a mixture choose. Raises
            UserError for other models.
    """

    def __init__(self, model: Model, dtype: Format = "", record: bool = False):
        self.model = model
        self.routers = routers_to_replay(model) if record else []
        self.cache = SlotCache()
        self.linears = Reordered(model, dtype)
        self.compact = None if dtype else Compact.of(model)
        self.graphs = Graphs(cuda_graphs(model.device)) if model.device.type == "cuda" else None
        # attention without repeating shared heads
        self.grouped = {"grouped": True} if model.packs else {}

    @cached_property
    def token_bytes(self) -> int:
        """What a token takes in the cache; 0 = unknown."""
        config = self.model.causal.config.get_text_config()
        heads = getattr(config, "num_key_value_heads", None) or getattr(
            config, "num_attention_heads", 0
        )
        layers, size = getattr(config, "num_hidden_layers", 0), self.model.head_size
        chosen = sum(r.top * r.stored_as.itemsize for r in self.routers)
        return 2 * layers * heads * size * self.model.dtype.itemsize + chosen

    @property
    def steady(self) -> bool:
        """Whether rules were found under which a sequence has the same bits in any company."""
        if self.compact:
            rules = [self.compact.rows(), self.outputs()]
        else:
            rules = self.linears.rules()
            if not rules or not self.model.packs or not self.linears.are_all():
                return False
        return None not in (*rules, self.attention())

    def attention(self) -> Tiling | None:
        """The tiling of attention over prompts; WHOLE where nothing is measured, None where no tiling
        holds.
        """
        config = self.model.causal.config.get_text_config()
        heads = getattr(config, "num_attention_heads", 0)
        if not (self.linears.linears and self.grouped and heads):
            return WHOLE
        shared = getattr(config, "num_key_value_heads", None) or heads
        return tiling_for(heads // shared, shared, self.model.head_size)

    def outputs(self) -> RowRule | None:
        """How many rows the output layer of a compact model may have."""
        m = self.model
        return rule_for("logits", m.logits, m.width, m.logits_each, "float32")

    def forget(self) -> None:
        """Gives back the memory of keys, values and copied weights."""
        self.cache = SlotCache()
        self.forget_weights()
        self.forget_graphs()

    def forget_graphs(self) -> None:
        """Drops captured steps, whose work is no longer what a step does."""
        if self.graphs:
            self.graphs.forget()

    def forget_weights(self) -> None:
        """Drops copies of weights, which have moved."""
        self.linears.forget()
        if self.compact:
            self.compact.forget()

    @torch.no_grad()
    def extend(
        self,
        first: int,
        tails: Sequence[Sequence[int]],
        start: Sequence[int],
        seen: Seen | None = None,
        shifts: Sequence[np.ndarray] = (),
    ) -> Tensor:
        """[n, V] logits after tails[i], whose tokens take positions start[i], ... of slot first +
        i. `seen` are the pictures whose places are among them; `shifts` [3, T] how far each of the
        tokens is turned beyond its position, where pictures are grids.
        """
        logits = list[Tensor]()
        for i, j in _waves(tails):
            hidden_nqD = self._extend(first + i, tails[i:j], start[i:j], seen, shifts[i:j])
            device = hidden_nqD.device
            last_n = torch.tensor([len(t) - 1 for t in tails[i:j]], device=device)
            logits.append(self._logits(hidden_nqD[torch.arange(j - i, device=device), last_n]))
        return torch.cat(logits)

    @torch.no_grad()
    def extend_each(
        self, first: int, tails: Sequence[Sequence[int]], start: Sequence[int]
    ) -> Iterator[Tensor]:
        """[N, V] logits after every token of tails[0], then of tails[1], ..., some hundred tokens at a
        time; they take places as those of `extend` do.
        """
        for i, j in _waves(tails):
            hidden_nqD = self._extend(first + i, tails[i:j], start[i:j], None, ())
            rows = [x[: len(t)] for x, t in zip(hidden_nqD, tails[i:j], strict=True)]
            for some_ND in torch.cat(rows).split(SCORED):
                yield self._logits(some_ND)

    def _extend(
        self,
        first: int,
        tails: Sequence[Sequence[int]],
        start: Sequence[int],
        seen: Seen | None,
        shifts: Sequence[np.ndarray],
    ) -> Tensor:
        """[n, q, D] the last hidden states of the tails, of which the longest has q tokens or fewer."""
        device = self.model.device
        q = FEW.up(max(map(len, tails)))
        ids_nq = torch.tensor([[*t, *[0] * (q - len(t))] for t in tails], device=device)
        at_nq = torch.tensor(start, device=device)[:, None] + torch.arange(q, device=device)
        upto = max(s + len(t) for s, t in zip(start, tails, strict=True))
        at_nq = at_nq.clamp(max=self.cache.length - 1)
        shift = None
        if shifts:
            filled = [np.pad(x, ((0, 0), (0, q - x.shape[1])), "edge") for x in shifts]
            shift = torch.from_numpy(np.stack(filled, 1)).to(device)
        return self._run(first, ids_nq, at_nq, upto, seen, shift)

    @torch.no_grad()
    def step(
        self, tokens: Sequence[int], at: Sequence[int], shift: Sequence[int] | None = None
    ) -> Tensor:
        """[n, V] logits after tokens[i], which takes position at[i] of slot i, and is turned by
        shift[i] more; good until the next step.
        """
        rows = [tokens, at] if shift is None else [tokens, at, shift]
        put_2n, upto = torch.tensor(rows).to(self.model.device), max(at) + 1
        return self.graphs.step(self, put_2n, upto) if self.graphs else self.forward(put_2n, upto)

    @torch.no_grad()
    def verify(
        self,
        tokens: Sequence[int],
        at: Sequence[int],
        slots: Sequence[int],
        shift: Sequence[int] | None = None,
    ) -> Tensor:
        """[N, V] logits after tokens[i], which takes position at[i] of slot slots[i]: several
        positions of one slot, each of which sees those before it.

        Every position is a row of its own, as a sequence is in `step`, with the same operators, so
        it gets the bits that it gets there.
        """
        device = self.model.device
        rows = [tokens, at, slots] if shift is None else [tokens, at, slots, shift]
        token_N, at_N, slot_N, *more = torch.tensor(rows).to(device)
        turned = more[0][:, None].expand(3, -1, -1) if more else None
        ids, place = token_N[:, None], at_N[:, None]
        hidden_N1D = self._run(0, ids, place, max(at) + 1, shift_3nq=turned, slot_n=slot_N)
        return self._logits(hidden_N1D[:, 0])

    def forward(self, put_2n: Tensor, upto: int) -> Tensor:
        """A step that puts tokens put_2n[0] at positions put_2n[1], with shifts put_2n[2] where it
        has a third row; rows see at most the first `upto` columns of their slots.
        """
        token_n, at_n, *more = put_2n
        shift = more[0][:, None].expand(3, -1, -1) if more else None
        hidden_n1D = self._run(0, token_n[:, None], at_n[:, None], upto, shift_3nq=shift)
        return self._logits(hidden_n1D[:, 0])

    def _run(
        self,
        first: int,
        ids_nq: Tensor,
        at_nq: Tensor,
        upto: int,
        seen: Seen | None = None,
        shift_3nq: Tensor | None = None,
        slot_n: Tensor | None = None,
    ) -> Tensor:
        """[n, q, D] after the last norm."""
        columns = round_up(upto)
        self.cache.place(first, at_nq, columns, slot_n)
        past_nqL = torch.arange(columns, device=at_nq.device) <= at_nq[:, :, None]
        tiling = (self.attention() if ids_nq.shape[1] > 1 else None) or WHOLE
        if self.compact:
            if seen is None:
                x_nqD = self.compact.embed(ids_nq)
            else:
                with in_measured_rows(self.model.eyes):
                    x_nqD = self.model.embed(ids_nq, seen)
            return self.compact.hidden(x_nqD, at_nq, past_nqL, self.cache, self.model.added, tiling)
        if seen is not None and self.model.is_mutual:
            at_nqq = at_nq.clamp(max=columns - 1)[:, None].expand(-1, at_nq.shape[1], -1)
            seeing = past_nqL.to(torch.uint8)
            past_nqL = seeing.scatter_reduce(2, at_nqq, mutual(ids_nq).to(torch.uint8), "amax") > 0
        # no longer than what counts: some architectures look at the longest
        position = at_nq.clamp(max=upto - 1)
        with (
            self.linears,
            in_measured_rows(None if seen is None else self.model.eyes),
            recording(self.routers, self.cache.keep_experts),
        ):
            return self.model.hidden(
                ids_nq,
                seen,
                attention_mask=self._mask(past_nqL[:, None]),
                position_ids=position if shift_3nq is None else position + shift_3nq,
                cache=self.cache,
                **(self.grouped and {**self.grouped, "tiling": tiling}),
            )

    def _mask(self, seen: Tensor) -> Tensor:
        """What is seen as the model's attention takes it: added to the scores by transformers' own, which
        models have that no kernel serves, such as those with attention sinks.
        """
        if self.model.causal.config.get_text_config()._attn_implementation != "eager":
            return seen
        least = torch.finfo(self.model.dtype).min
        return torch.zeros_like(seen, dtype=self.model.dtype).masked_fill_(~seen, least)

    def _logits(self, hidden_ND: Tensor) -> Tensor:
        """[N, V] in float32."""
        if self.compact:
            return (self.outputs() or ANY).apply(self.model.logits, hidden_ND).float()
        with self.linears:
            return self.model.logits(hidden_ND).float()


def _waves(tails: Sequence[Sequence[int]]) -> Iterator[tuple[int, int]]:
    """From which tail to which, without it, one forward pass reads."""
    i = 0
    while i < len(tails):
        j, longest = i, 0
        while j < len(tails) and (j == i or max(longest, len(tails[j])) * (j - i + 1) <= PREFILL):
            longest = max(longest, len(tails[j]))
            j += 1
        yield i, j
        i = j
