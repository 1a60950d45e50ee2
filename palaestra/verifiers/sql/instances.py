"""Other instances of a database: statements, for sqlite and duckdb alike, that take rows away or
move values.
"""

from __future__ import annotations

import contextlib
import datetime
import math
import re
from collections.abc import Iterable, Sequence
from decimal import Decimal
from itertools import permutations
from typing import Any

PRIME = 100_003
SAMPLE_ROWS = 2000  # rows of a table in which columns are looked at for what they determine
# from so many rows on that repeat a value, another column's value repeating too may be no chance
REPEATS = 8
CANDIDATES = 40  # columns that are compared by pairs
LITERALS = 8  # of a reference query, around which rows are added
NUMBER = re.compile(r"(?<![\w.])\d+(?:\.\d+)?(?![\w.])")
TEXT = re.compile(r"'((?:[^']|'')*)'")
DAY = re.compile(r"\d{4}-\d\d-\d\d")
DAYS = (-1, 0, 1)


def quote(name: str) -> str:
    return '"{}"'.format(name.replace('"', '""'))


def deletion(table: str, odd: bool) -> str:
    """Of every second row: of those with an odd number, or of the others."""
    return f"DELETE FROM {table} WHERE (rowid % 2 <> 0) = {odd}"


def sample(table: str, columns: Sequence[str]) -> str:
    return f"SELECT {', '.join(map(quote, columns))} FROM {table} LIMIT {SAMPLE_ROWS}"


def move_query(
    table: str, columns: Sequence[str], bundles: Sequence[Sequence[str]], rows: int, seed: int
) -> str:
    """The query for `table` with the values of some columns moved to other rows, in its own order
    of rows.

    The rows stand on a circle, shuffled by the seed; bundle j takes its values from (j + seed - 1)
    mod (rows - 1) + 1 places further along, so that it leaves its row and, while there are rows
    enough, all other bundles. The columns of a bundle move together, those in none stay. Of two
    rows every other bundle is exchanged.
    """
    places = {
        name: (j + seed) % 2 if rows == 2 else (j + seed - 1) % (rows - 1) + 1
        for j, bundle in enumerate(bundles)
        for name in bundle
    }
    selected: list[str] = []
    for name in columns:
        c, by = quote(name), places.get(name, 0)
        ahead = (
            f"CASE WHEN row_number() OVER w <= {rows - by} THEN lead({c}, {by}) OVER w ELSE "
            f"lag({c}, {rows - by}) OVER w END"
        )
        selected.append(f"{ahead} AS {c}" if by else c)
    r = f"(rowid % {PRIME})"
    circle = f"({r} * {r} * {seed * 7919} + {r} * {seed * 48271}) % {PRIME}, rowid"
    return (
        f"SELECT {', '.join(selected)} FROM {table} WINDOW w AS (ORDER BY {circle}) ORDER BY rowid"
    )


def bundle_columns(
    columns: Sequence[str], joint: Iterable[Sequence[str]], rows: Sequence[Sequence[Any]]
) -> list[list[str]]:
    """Columns that must move together: those of a composite foreign key (`joint`), and what repeats
    with another column.

    A column that has one value of B to each of its values (a city has one country) is not parted
    from B, for queries may group by either. Ten or more rows show it: `REPEATS` must repeat a
    value, and B have three different ones.
    """
    bundle = {name: {name} for name in columns}

    def join(a: str, b: str) -> None:
        both = bundle[a] | bundle[b]
        bundle.update(dict.fromkeys(both, both))

    for group in joint:
        known = [name for name in group if name in bundle]
        for name in known[1:]:
            join(known[0], name)
    values = {
        name: list(map(repr, column))
        for name, column in zip(columns, zip(*rows, strict=True), strict=False)
    }
    different = {name: len(set(column)) for name, column in values.items()}
    several = [
        name for name in values if different[name] > 2 and len(rows) - different[name] >= REPEATS
    ]
    for a, b in permutations(several[:CANDIDATES], 2):
        if b not in bundle[a] and len(set(zip(values[a], values[b], strict=True))) == different[a]:
            join(a, b)
    return list({min(names): sorted(names) for names in bundle.values()}.values())


def literals_of(query: str) -> tuple[int | float | str, ...]:
    """The numbers, words and days that a query compares with; of a pattern its fixed part. Other
    text with digits is left out.
    """
    words = [w.replace("''", "'").strip("%_") for w in TEXT.findall(query)]
    numbers = [n for n in NUMBER.findall(TEXT.sub(" ", query)) if len(n) < 16]
    kept = [
        *(float(n) if "." in n else int(n) for n in numbers),
        *(w for w in words if w and (DAY.fullmatch(w) or not any(map(str.isdigit, w)))),
    ]
    return tuple(dict.fromkeys(kept))[:LITERALS]


def values_beside(literals: Iterable[int | float | str], column: Sequence[Any]) -> list[Any]:
    """Values of a column's own kind at and beside the literals: of numbers and days those between
    its least and its greatest, and in a column of fractions fractions too.
    """
    known = [x for x in column if x is not None]
    if not known:
        return []
    if all(isinstance(x, int | float | Decimal) for x in known):
        near = _numbers_beside(literals, all(isinstance(x, int) for x in known))
    elif all(type(x) is datetime.date for x in known):
        near = _days_beside(literals)
    elif all(isinstance(x, str) and DAY.fullmatch(x) for x in known):
        near = list(map(str, _days_beside(literals)))
    elif all(isinstance(x, str) for x in known):
        words = [w for w in literals if isinstance(w, str) and not DAY.fullmatch(w)]
        return [v for w in words if any(w in x for x in known) for v in (w, f"{w}x", f"x{w}")]
    else:
        return []
    return [n for n in near if min(known) <= n <= max(known)]


def _numbers_beside(literals: Iterable[int | float | str], whole: bool) -> list[int | float]:
    near: list[int | float] = []
    for n in literals:
        if isinstance(n, str):
            continue
        if whole:
            near += range(math.floor(n) - 1, math.ceil(n) + 2)
            continue
        places = len(f"{n!r}".partition(".")[2]) + 1  # one decimal place more than the literal has
        steps = (-1, -0.5, -(10**-places), 0, 10**-places, 0.5, 1)
        near += (round(n + step, places) for step in steps)
    return list(dict.fromkeys(near))


def _days_beside(literals: Iterable[int | float | str]) -> list[datetime.date]:
    days: list[datetime.date] = []
    for literal in literals:
        with contextlib.suppress(ValueError, OverflowError, TypeError):
            day = datetime.date.fromisoformat(literal) if isinstance(literal, str) else None
            days += [day + datetime.timedelta(days=d) for d in DAYS] if day else []
    return list(dict.fromkeys(days))
