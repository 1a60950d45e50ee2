"""How long a pool of decoding slots takes for sequences of given lengths, and in which order to give
them out. One step decodes a token of every sequence that has a slot.

Giving the longest to the slot that is free first takes at most 4/3 - 1 / (3 S) times as long as the
best plan (Graham 1969); the shortest first has the least mean waiting time, and often the latest end.
"""

from __future__ import annotations

import heapq
from collections.abc import Sequence

import numpy as np

from palaestra.errors import UserError


def rounds_steps(length_N: Sequence[int], slots: int) -> int:
    """Steps where so many begin together and the next ones wait for the longest of them."""
    _check(slots)
    return sum(max(length_N[i : i + slots]) for i in range(0, len(length_N), slots))


def refill_steps(length_N: Sequence[int], slots: int, order_N: Sequence[int] | None = None) -> int:
    """Steps where a slot that is free takes the next sequence at once: in their order, or that of
    the places `order_N`.
    """
    _check(slots)
    free = [0] * slots
    for i in range(len(length_N)) if order_N is None else order_N:
        heapq.heapreplace(free, free[0] + int(length_N[i]))
    return max(free)


def longest_first(length_N: Sequence[float]) -> list[int]:
    """Places from the longest to the shortest; equal ones stay in their order."""
    return np.argsort(-np.asarray(length_N, float), kind="stable").tolist()


def shortest_first(length_N: Sequence[float]) -> list[int]:
    """Places from the shortest to the longest."""
    return np.argsort(np.asarray(length_N, float), kind="stable").tolist()


def fewest_steps(length_N: Sequence[int], slots: int) -> int:
    """Steps that no plan goes below: a full pool's share, and the longest sequence."""
    _check(slots)
    return max(-(-sum(length_N) // slots), max(length_N, default=0))


def _check(slots: int) -> None:
    if slots < 1:
        raise UserError(f"a pool has {slots} slots; give it at least one")
