"""Decode steps as CUDA graphs: the several hundred kernels of a step are launched at once.

A graph replays fixed work at fixed addresses, so its rows and its reach are rounded up. A row that only fills up reads and
writes the last column of its slot, where no sequence ever comes: the last token of a sequence is never put in.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TYPE_CHECKING

import torch
from torch import Tensor

if TYPE_CHECKING:
    from palaestra.rollout.decoder import Decoder

REACH = 128  # columns, the unit in which a graph's reach grows
Capture = Callable[[Callable[[], Tensor]], Callable[[], Tensor]]  # work -> the same work, replayed


class Graphs:
    """The steps of a decoder, captured by rows and reach when they first occur.

    What is captured holds the addresses of the weights and of the cache: a cache that has grown is found here, and who drops
    the cache or puts weights elsewhere calls `forget`. A model whose forward pass waits for the GPU's answer cannot be
    captured; it goes on step by step.
    """

    def __init__(self, decoder: Decoder, capture: Capture):
        self.decoder, self._capture = decoder, capture
        self._made: dict[tuple[int, int], tuple[Tensor, Tensor, Callable[[], Tensor]]] = {}
        self._cache: tuple[int, ...] = ()
        self.able = True

    def forget(self) -> None:
        self._made.clear()

    def step(self, token_n: Tensor, at_n: Tensor, upto: int) -> Tensor:
        """[n, V] logits after token_n at positions at_n < upto of slots 0..n-1; good until the next step."""
        cache, n = self.decoder.cache, len(token_n)
        if self._cache != (state := (cache.slots, cache.length, *(room.data_ptr() for room in cache.keys))):
            self._made.clear()
            self._cache = state
        shape = min(rows(n), cache.slots), min(-(-upto // REACH) * REACH, cache.length)
        if shape not in self._made:
            self._made[shape] = self._captured(*shape)
        token, at, replay = self._made[shape]
        token[:n], at[:n] = token_n, at_n
        at[n:] = cache.length - 1
        return replay()[:n]

    def _captured(self, n: int, upto: int) -> tuple[Tensor, Tensor, Callable[[], Tensor]]:
        device = self.decoder.model.device
        token = torch.zeros(n, dtype=torch.long, device=device)
        at = torch.full_like(token, self.decoder.cache.length - 1)

        def work() -> Tensor:
            return self.decoder.forward(token, at, upto)

        if self.able:
            try:
                return token, at, self._capture(work)
            except RuntimeError as error:
                self.able = False
                logging.getLogger(__name__).warning(
                    "%s cannot be captured as a CUDA graph, so every kernel is launched: %s",
                    self.decoder.model.name,
                    error,
                )
        return token, at, work


def rows(n: int) -> int:
    """The next power of two up to 32, then multiples of 32."""
    return 1 << (n - 1).bit_length() if n <= 32 else -(-n // 32) * 32


def cuda_graph() -> Capture:
    """Captures into one pool of memory: a graph's result is read before the next is replayed."""
    pool = torch.cuda.graph_pool_handle()

    def capture(work: Callable[[], Tensor]) -> Callable[[], Tensor]:
        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):  # libraries and lazy buffers are set up outside the graph
            work()
        torch.cuda.current_stream().wait_stream(side)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, pool=pool):
            found = work()

        def replay() -> Tensor:
            graph.replay()
            return found

        return replay

    return capture
