"""Two calculi of relations, and which relations follow from two others: the interval algebra (Allen 1983)
and RCC-8 (Randell, Cui & Cohn 1992). A set of relations is a whole number: bit i stands for the relation i.

The tables are counted, not copied. Any three intervals are in the order of some three with ends in 0..5; any
three relations between regions occur among unions of cells in a row of six.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import combinations
from typing import Literal, TypeAlias

import numpy as np

CalculusName: TypeAlias = Literal["rcc8", "interval"]
INTERVAL = ("b", "bi", "m", "mi", "o", "oi", "s", "si", "d", "di", "f", "fi", "eq")
RCC8 = ("DC", "EC", "PO", "TPP", "NTPP", "TPPi", "NTPPi", "EQ")
MEANINGS = {
    "interval": "b before, m meets, o overlaps, s starts, d during, f finishes, bi mi oi si di fi the "
    "converse of each, eq equal; between intervals",
    "rcc8": "DC disconnected, EC touching from outside, PO partly overlapping, TPP inside and touching the "
    "border, NTPP inside without touching it, TPPi and NTPPi their converse, EQ equal; between regions",
}
CELLS = 6


@dataclass(frozen=True)
class Calculus:
    """Base relations, the last one of which is identity, and their composition: `table[r][s]` is the set of
    relations that x may have to z where x r y and y s z.
    """

    labels: tuple[str, ...]
    table: tuple[tuple[int, ...], ...]

    @property
    def everything(self) -> int:
        return (1 << len(self.labels)) - 1

    def compose(self, first: int, second: int) -> int:
        """The composition of two sets."""
        union = 0
        for r in members(first):
            for s in members(second):
                union |= self.table[r][s]
        return union

    def converse(self, relations: int) -> int:
        """The relations of z to x: those whose composition with one of the set may be identity."""
        same = len(self.labels) - 1
        return sum(
            1 << s
            for s in range(len(self.labels))
            if any(self.table[r][s] >> same & 1 for r in members(relations))
        )

    def along(self, path: Sequence[int]) -> int:
        """The set that a path of relations allows."""
        value = 1 << path[0]
        for r in path[1:]:
            value = self.compose(value, 1 << r)
        return value

    def spell(self, relations: int) -> str:
        return "|".join(self.labels[i] for i in members(relations))


def members(relations: int) -> list[int]:
    """The relations of a set, in order."""
    return [i for i in range(relations.bit_length()) if relations >> i & 1]


@lru_cache
def calculus_of(name: CalculusName) -> Calculus:
    labels, relation_NN = {
        "interval": (INTERVAL, interval_relations),
        "rcc8": (RCC8, region_relations),
    }[name]
    return Calculus(labels, composition(relation_NN(), len(labels)))


def composition(relation_NN: np.ndarray, n: int) -> tuple[tuple[int, ...], ...]:
    """The table of n relations, from those between all pairs of some things."""
    has_RNN = np.stack([relation_NN == r for r in range(n)]).astype(np.float32)
    rows = list[tuple[int, ...]]()
    for r in range(n):
        both_SNN = has_RNN[r] @ has_RNN > 0
        found_ST = (both_SNN[:, None] & (has_RNN[None] > 0)).any((2, 3))
        rows.append(tuple(sum(1 << t for t in range(n) if row_T[t]) for row_T in found_ST))
    return tuple(rows)


def interval_relations() -> np.ndarray:
    """[N, N] the relation of each interval with ends in 0..5 to each other one."""
    some = list(combinations(range(6), 2))
    return np.array([[interval_relation(x, y) for y in some] for x in some])


def interval_relation(x: tuple[int, int], y: tuple[int, int]) -> int:
    (a, b), (c, d) = x, y
    names = {
        "eq": (a, b) == (c, d),
        "b": b < c,
        "bi": d < a,
        "m": b == c,
        "mi": d == a,
        "s": a == c and b < d,
        "si": a == c and d < b,
        "f": b == d and c < a,
        "fi": b == d and a < c,
        "d": c < a and b < d,
        "di": a < c and d < b,
        "o": a < c < b < d,
        "oi": c < a < d < b,
    }
    (name,) = [n for n, holds in names.items() if holds]
    return INTERVAL.index(name)


def region_relations() -> np.ndarray:
    """[N, N] the relation of each set of cells in a row to each other one. Neighbours touch; a cell is
    inside a region without touching its border if both of its neighbours belong to the region too.
    """
    region_N = np.arange(1, 1 << CELLS) << 1  # nothing is in front of the first cell
    near_N = region_N | region_N << 1 | region_N >> 1
    x_N1, y_1N = region_N[:, None], region_N[None]
    overlap, touch = x_N1 & y_1N > 0, near_N[:, None] & y_1N > 0
    part, whole = x_N1 & ~y_1N == 0, y_1N & ~x_N1 == 0
    deep, deep_whole = near_N[:, None] & ~y_1N == 0, near_N[None] & ~x_N1 == 0
    cases = {
        "DC": ~touch,
        "EC": touch & ~overlap,
        "EQ": part & whole,
        "TPP": part & ~whole & ~deep,
        "NTPP": part & ~whole & deep,
        "TPPi": whole & ~part & ~deep_whole,
        "NTPPi": whole & ~part & deep_whole,
    }
    return np.select(list(cases.values()), [RCC8.index(c) for c in cases], RCC8.index("PO"))


def closure(
    calculus: Calculus, edges: Sequence[tuple[int, int, int]], nodes: int
) -> list[list[int]] | None:
    """[nodes, nodes] the sets that path consistency leaves: C_xz and C_xy C_yz are intersected until nothing
    changes. None where a set is empty: the edges (x, relation, y) contradict each other.
    """
    sets = [[calculus.everything] * nodes for _ in range(nodes)]
    for x in range(nodes):
        sets[x][x] = 1 << (len(calculus.labels) - 1)
    for x, r, y in edges:
        sets[x][y] &= 1 << r
        sets[y][x] &= calculus.converse(1 << r)
    changed = True
    while changed:
        changed = False
        for x in range(nodes):
            for y in range(nodes):
                for z in range(nodes):
                    less = sets[x][z] & calculus.compose(sets[x][y], sets[y][z])
                    changed |= less != sets[x][z]
                    sets[x][z] = less
    return None if any(not s for row in sets for s in row) else sets
