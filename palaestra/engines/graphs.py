"""Decode steps as CUDA graphs: the several hundred kernels of a step are launched at once.

A graph replays fixed work at fixed addresses, so its rows and its reach are rounded up. A row that
only fills up reads and writes the last column of its slot, where no sequence ever comes: the last
token of a sequence is never put in.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable
from typing import Protocol, TypeAlias

import torch
from torch import Tensor

from palaestra.engines.cache import SlotCache
from palaestra.models.model import Model

REACH = 128  # columns, the unit in which a graph's reach grows
# steps of a shape launched kernel by kernel: to capture one takes about as long as it saves in so
# many
LAUNCHES = 2
GraphReplay: TypeAlias = Callable[[], None]
Capture: TypeAlias = Callable[[Callable[[], None]], GraphReplay]  # work -> the same work, replayed


class Steps(Protocol):
    """A decoder, as its graphs see it."""

    @property
    def model(self) -> Model: ...
    @property
    def cache(self) -> SlotCache: ...

    def forward(self, put_2n: Tensor, upto: int) -> Tensor: ...


class Graphs:
    """The steps of a decoder, captured by rows and reach.

    What is captured holds the addresses of the weights and of the cache: a cache that has grown is
    found here, and who drops the cache or puts weights elsewhere calls `forget`. A model whose
    forward pass waits for the GPU's answer cannot be captured; it goes on step by step. `fresh`
    gives captures that share memory, which ends with the last of them.
    """

    def __init__(self, fresh: Callable[[], Capture]):
        self._fresh = fresh
        self.able = True
        self.forget()

    def forget(self) -> None:
        self._made: dict[tuple[int, int], tuple[Tensor, GraphReplay]] = {}
        self._met: Counter[tuple[int, int]] = Counter()
        self._cache: tuple[int, ...] = ()
        self._logits: Tensor | None = None  # [slots, V], of whichever graph came last
        self._capture = self._fresh()

    def step(self, decoder: Steps, put_2n: Tensor, upto: int) -> Tensor:
        """[n, V] logits after tokens put_2n[0] at positions put_2n[1] < upto of slots 0..n-1, with the
        shifts of a third row where there is one, which all steps of a model have; good until the
        next step.
        """
        cache, n = decoder.cache, put_2n.shape[1]
        if self._cache != (
            state := (cache.slots, cache.length, *(room.data_ptr() for room in cache.keys))
        ):
            self.forget()
            self._cache = state
        shape = min(rows(n), cache.slots), min(-(-upto // REACH) * REACH, cache.length)
        self._met[shape] += 1
        if self.able and shape not in self._made and self._met[shape] > LAUNCHES:
            try:
                self._made[shape] = self._captured(decoder, len(put_2n), *shape)
            except RuntimeError as error:
                self.able = False
                logging.getLogger(__name__).warning(
                    "%s cannot be captured as a CUDA graph, so every kernel is launched: %s",
                    decoder.model.name,
                    error,
                )
        if shape not in self._made:
            logits = decoder.forward(put_2n, upto)
            if self.able and self._logits is None:
                self._logits = logits.new_empty(cache.slots, logits.shape[1])
            return logits
        held_2n, replay = self._made[shape]
        held_2n[:, :n] = put_2n
        held_2n[1, n:] = cache.length - 1
        replay()
        assert self._logits is not None
        return self._logits[:n]

    def _captured(
        self, decoder: Steps, kinds: int, n: int, upto: int
    ) -> tuple[Tensor, GraphReplay]:
        logits, held_2n = (
            self._logits,
            torch.zeros(kinds, n, dtype=torch.long, device=decoder.model.device),
        )
        held_2n[1] = decoder.cache.length - 1

        def work() -> None:
            assert logits is not None
            logits[:n] = decoder.forward(held_2n, upto)

        return held_2n, self._capture(work)


def rows(n: int) -> int:
    """The next power of two up to 32, then multiples of 32."""
    return 1 << (n - 1).bit_length() if n <= 32 else -(-n // 32) * 32


def cuda_graphs(device: torch.device) -> Callable[[], Capture]:
    """Captures of one `fresh` share a pool: no graph's memory is read after another is replayed."""
    side = torch.cuda.Stream(device)  # one for all: libraries keep a workspace for each stream

    def fresh() -> Capture:
        pool = torch.cuda.graph_pool_handle()

        def capture(work: Callable[[], None]) -> GraphReplay:
            with torch.cuda.device(device):
                here, graph = torch.cuda.current_stream(), torch.cuda.CUDAGraph()
                side.wait_stream(here)
                try:
                    # lazy buffers and libraries' workspaces are made outside the graph
                    with torch.cuda.stream(side):
                        work()
                    with torch.cuda.graph(graph, pool=pool, stream=side):
                        work()
                finally:
                    torch.cuda.set_stream(here)  # a capture that fails leaves its own
                here.wait_stream(side)
            return graph.replay

        return capture

    return fresh
