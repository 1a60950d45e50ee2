"""Which slots of the cache hold the keys and values of which tokens, so that a known prefix is not
computed again.

A finished sequence stays in its slot until the slot is needed: the next turn of its episode, a
retry or a branch of a tree goes on from there. Prefixes are found by the hashes of their blocks and
then compared token by token.
"""

from __future__ import annotations

from dataclasses import dataclass

BLOCK = 16  # tokens; a shorter common prefix is not looked for


@dataclass(eq=False)
class Held:
    """The tokens whose keys and values a slot holds, and a hash of every prefix of whole blocks."""

    slot: int
    ids: tuple[int, ...]
    hashes: tuple[int, ...]


class Prefixes:
    """An index of the slots by the prefixes that they hold. All methods are exact: a hash only
    proposes.
    """

    def __init__(self) -> None:
        self.by_slot: dict[int, Held] = {}
        self._by_hash: dict[int, dict[Held, None]] = {}

    def hold(self, slot: int, ids: tuple[int, ...]) -> None:
        """From now on the slot holds these tokens, whatever it held before."""
        self.release(slot)
        held = self.by_slot[slot] = Held(slot, ids, _hashes(ids))
        for h in held.hashes:
            self._by_hash.setdefault(h, {})[held] = None

    def release(self, slot: int) -> None:
        held = self.by_slot.pop(slot, None)
        if held is None:
            return
        for h in held.hashes:
            self._by_hash[h].pop(held)
            if not self._by_hash[h]:
                del self._by_hash[h]

    def exchange(self, a: int, b: int) -> None:
        first, second = self.by_slot.pop(a, None), self.by_slot.pop(b, None)
        for held, slot in ((first, b), (second, a)):
            if held:
                held.slot = slot
                self.by_slot[slot] = held

    def longest(self, ids: tuple[int, ...]) -> tuple[Held | None, int]:
        """A slot that holds a prefix of `ids` and the length of it; at least one token is always
        left to compute.
        """
        for h in reversed(_hashes(ids[:-1])):
            for held in reversed(self._by_hash.get(h, {})):
                n = _common(held.ids, ids[:-1])
                if n >= BLOCK:
                    return held, n
        return None, 0

    def forget(self) -> None:
        self.by_slot.clear()
        self._by_hash.clear()


def _hashes(ids: tuple[int, ...]) -> tuple[int, ...]:
    hashes, h = [], 0
    for end in range(BLOCK, len(ids) + 1, BLOCK):
        h = hash((h, ids[end - BLOCK : end]))
        hashes.append(h)
    return tuple(hashes)


def _common(a: tuple[int, ...], b: tuple[int, ...]) -> int:
    n = min(len(a), len(b))
    return n if a[:n] == b[:n] else next(i for i in range(n) if a[i] != b[i])
