"""What a reference query leaves open: the order of rows, or which rows, where they tie."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

from palaestra.verifiers.sql.tables import Rows, same_rows

QUOTED = re.compile(r"""'[^']*'|"[^"]*"|`[^`]*`|\[[^][]*]""")
WORDS = re.compile(r"\(|\)|\border\s+by\b|\b(?:limit|offset|fetch)\b", re.IGNORECASE)
SELECTS = re.compile(r"\(\s*(?:select|with)\b", re.IGNORECASE)


def is_ordered(query: str) -> bool:
    """Whether a query's own rows are ordered: ORDER BY outside brackets."""
    text, depth = "", 0
    for c in QUOTED.sub("''", query):
        depth += (c == "(") - (c == ")")
        text += c if depth == 0 else " "
    return bool(re.search(r"\border\s+by\b", text, re.IGNORECASE))


def break_ties(query: str, columns: int) -> tuple[str, ...]:
    """The query with its ties broken by its own columns, from the least on and from the greatest
    on. Without ties both give its rows.

    Each ORDER BY and each LIMIT counts, in subqueries too, where the first column breaks ties. The
    orders of windows and of aggregates stay. () if nothing is ordered or limited.
    """
    masked = QUOTED.sub(lambda m: "x" * len(m[0]), query)
    places: list[tuple[int, int, bool]] = []  # where, how many columns, whether ORDER BY is there
    levels = [(columns, False)]  # of each open bracket: columns (0: no query), inside ORDER BY
    for m in WORDS.finditer(masked):
        n, inside = levels[-1]
        word = m[0].lower()
        if word == "(":
            levels.append((int(bool(SELECTS.match(masked, m.start()))), False))
            continue
        if word.startswith("order"):
            levels[-1] = n, True
            continue
        if n and (inside or word == "limit"):
            places.append((m.start(), n, inside))
        levels[-1] = 0 if word == "limit" else n, False
        if word == ")" and len(levels) > 1:
            levels.pop()
    if levels[0][0] and levels[0][1]:
        places.append((len(query), columns, True))
    return tuple(_written(query, places, way) for way in ("", " DESC")) if places else ()


def _written(query: str, places: Sequence[tuple[int, int, bool]], way: str) -> str:
    text, start = "", 0
    for at, n, ordered in places:
        keys = ", ".join(f"{i}{way}" for i in range(1, n + 1))
        text += f"{query[start:at].rstrip()}{', ' if ordered else ' ORDER BY '}{keys} "
        start = at
    return text + query[start:]


def same_up_to_ties(orders: Sequence[Rows], rows: Rows, *, columns_ordered: bool = True) -> bool:
    """Whether rows stand in an order that the reference allows. `orders`: the same rows in the
    several orders that it gives.

    Rows that tie stand in one block in all orders; the blocks keep their places, and the rows of a
    block have none.
    """
    first = orders[0]
    if len(rows) != len(first):
        return False
    ends = [0, *(k for k, same in enumerate(_prefixes_agree(orders), 1) if same), len(first)]
    return all(
        same_rows(first[a:b], rows[a:b], columns_ordered=columns_ordered)
        for a, b in pairwise(ends)
        if a < b
    )


def _prefixes_agree(orders: Sequence[Rows]) -> list[bool]:
    """For each number of rows, whether all orders begin with the same ones."""
    agree = [True] * len(orders[0])
    for other in orders[1:]:
        surplus: Counter[Any] = Counter()
        for k, (a, b) in enumerate(zip(orders[0], other, strict=True)):
            for row, by in ((a, 1), (b, -1)):
                surplus[row] += by
                if not surplus[row]:
                    del surplus[row]
            agree[k] &= not surplus
    return agree
