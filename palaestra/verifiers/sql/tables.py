"""What a query runs on, the table that it gives, and how two tables are compared."""

from __future__ import annotations

import datetime
import math
import sys
from collections import Counter, OrderedDict
from collections.abc import Callable, Hashable, Iterable
from decimal import Decimal
from pathlib import Path
from typing import Any, Generic, Literal, TypeAlias, TypeVar

from palaestra.errors import UserError
from palaestra.types import value_class

Engine: TypeAlias = Literal["sqlite", "duckdb"]
Rows: TypeAlias = tuple[tuple[Any, ...], ...]
Half: TypeAlias = Literal["", "odd", "even"]
Added: TypeAlias = Literal["", "ties", "nulls"]
MOST_ROWS = 10_000
MOST_BYTES = 20_000_000  # of a result
MOST_KEPT = 512  # databases that a process keeps open of an engine: those of some fifty scripts
MOST_KEPT_BYTES = 1_000_000_000
RELATIVE, ABSOLUTE = 1e-10, 1e-12  # differences of numbers that are rounding errors
SINGLE = 1e-6  # relative, of a number in 32 bits
MOST_UNPAIRED = 500  # rows without an exact partner that are tried one with another
T = TypeVar("T")


@value_class
class Database:
    """Where queries run: a script's database, or a file; as it is, or changed into another instance
    of the same schema.

    `half`: with only the odd or even rows of each table. `seed` > 0: with the values of its columns
    moved to other rows. `backward`: with its rows stored in reverse and without keys and indexes,
    so that an order that a query leaves open differs. `reverse`: with scans of tables that run
    from the last row on (sqlite), which changes no row, key or index. `added`: with copies of rows
    that have equal values in all columns but one ("ties"), or NULL in one ("nulls"). `beside`: with
    copies of rows that have values at and beside these literals.
    """

    schema: str = ""
    path: str = ""
    engine: Engine = "sqlite"
    half: Half = ""
    seed: int = 0
    backward: bool = False
    reverse: bool = False
    added: Added = ""
    beside: tuple[int | float | str, ...] = ()

    @property
    def whole(self) -> bool:
        return not (self.half or self.seed or self.backward or self.added or self.beside)


@value_class
class ResultTable:
    """What a query gave. error: "" | "timeout" | why it did not run."""

    rows: Rows = ()
    error: str = ""
    size: int = 0  # bytes


class Single(float):
    """A number that the database holds in 32 bits."""


class Kept(Generic[T]):
    """The things last used, up to a number of them and of bytes in all. What leaves is closed."""

    def __init__(
        self, close: Callable[[T], object], most: int = MOST_KEPT, size: int = MOST_KEPT_BYTES
    ) -> None:
        self.close, self.most, self.size = close, most, size
        self.things: OrderedDict[Hashable, tuple[T, int]] = OrderedDict()
        self.bytes = 0

    def get(self, key: Hashable, make: Callable[[], tuple[T, int]]) -> T:
        """The thing of this name, which `make` makes with its size in bytes."""
        if key in self.things:
            self.things.move_to_end(key)
            return self.things[key][0]
        thing, size = make()
        self.things[key] = thing, size
        self.bytes += size
        while len(self.things) > 1 and (len(self.things) > self.most or self.bytes > self.size):
            self._leave(*self.things.popitem(last=False)[1])
        return thing

    def clear(self) -> None:
        while self.things:
            self._leave(*self.things.popitem()[1])

    def _leave(self, thing: T, size: int) -> None:
        self.bytes -= size
        self.close(thing)


def file_of(database: Database) -> Path:
    path = Path(database.path).resolve()
    if not path.is_file():
        raise UserError(f"the database {database.path} does not exist; give the path of a file")
    return path


def change_time(database: Database) -> int:
    """When the file was last changed; 0 of a script."""
    return file_of(database).stat().st_mtime_ns if database.path else 0


def table(rows: Iterable[tuple[Any, ...]], single: frozenset[int] = frozenset()) -> ResultTable:
    """The rows, read one by one until they are too many or too long. `single`: the columns of
    32-bit numbers.
    """
    result_rows: list[tuple[Any, ...]] = []
    size = 0
    for row in rows:
        size += sum(map(sys.getsizeof, row))
        if len(result_rows) == MOST_ROWS or size > MOST_BYTES:
            return ResultTable(error=f"more than {MOST_ROWS} rows or {MOST_BYTES} bytes")
        cells = tuple(map(cell, row))
        result_rows.append(
            tuple(
                Single(x) if i in single and isinstance(x, float) else x
                for i, x in enumerate(cells)
            )
            if single
            else cells
        )
    return ResultTable(rows=tuple(result_rows), size=size)


def cell(x: Any) -> Any:
    """A value as it is compared: numbers as numbers, text as text, a day as its midnight, all else
    by its type and text.
    """
    if isinstance(x, float) and math.isnan(x):
        return ("nan",)
    if x is None or isinstance(x, int | float | Decimal | str | bytes):
        return x
    if isinstance(x, datetime.datetime):
        return ("time", str(x.astimezone(datetime.UTC) if x.tzinfo else x))
    if isinstance(x, datetime.date):
        return ("time", f"{x} 00:00:00")
    if isinstance(x, list | tuple):
        return tuple(map(cell, x))  # pyright: ignore[reportUnknownArgumentType, reportUnknownVariableType]
    if isinstance(x, dict):
        return tuple((cell(k), cell(v)) for k, v in x.items())  # pyright: ignore[reportUnknownVariableType]
    return (type(x).__name__, str(x))


def equal_cells(a: Any, b: Any) -> bool:
    """Whether two cells are equal: exactly, or numbers up to rounding errors where one is not
    exact.
    """
    if isinstance(a, float) or isinstance(b, float):
        if not (isinstance(a, int | float | Decimal) and isinstance(b, int | float | Decimal)):
            return False
        relative = SINGLE if isinstance(a, Single) or isinstance(b, Single) else RELATIVE
        try:
            return math.isclose(a, b, rel_tol=relative, abs_tol=ABSOLUTE)
        except OverflowError:  # an integer beyond all floats
            return False
    if isinstance(a, tuple) and isinstance(b, tuple):
        return len(a) == len(b) and all(map(equal_cells, a, b))  # pyright: ignore[reportUnknownArgumentType]
    return a == b


def place(x: Any) -> tuple[Any, ...]:
    """Where a cell stands among others of any type."""
    if isinstance(x, int | float | Decimal):
        return (1, x)
    if isinstance(x, tuple):
        return (4, tuple(map(place, x)))  # pyright: ignore[reportUnknownArgumentType, reportUnknownVariableType]
    return (0,) if x is None else (2, x) if isinstance(x, str) else (3, x)


def same_rows(a: Rows, b: Rows, *, ordered: bool = False, columns_ordered: bool = True) -> bool:
    """Equality as multisets of rows, or as lists; without the order of columns, each row's values
    are sorted.
    """
    if len(a) != len(b):
        return False
    if not columns_ordered:
        a, b = (tuple(tuple(sorted(row, key=place)) for row in rows) for rows in (a, b))
    if ordered:
        return all(map(equal_cells, a, b))
    counts = Counter(a), Counter(b)
    left, right = (sorted((x - y).elements(), key=place) for x, y in (counts, counts[::-1]))
    if all(map(equal_cells, left, right)):
        return True
    return len(left) <= MOST_UNPAIRED and _pair_up(left, right)


def _pair_up(left: list[Any], right: list[Any]) -> bool:
    """Whether each row has a partner: rounding errors can sort rows in another order."""
    for row in left:
        index = next((i for i, other in enumerate(right) if equal_cells(row, other)), None)
        if index is None:
            return False
        del right[index]
    return True


def qatch(gold: Rows, stated: Rows, *, bag: bool) -> float:
    """Mean of cell precision, cell recall and the ratio of row counts, each to three decimals
    (QATCH).

    Cells are compared as sets, as released (duplicates are free), or as bags; numbers to ten
    digits.
    """
    if not gold or not stated:
        return float(not gold and not stated)
    cells = [Counter(_digits(c) for row in rows for c in row) for rows in (gold, stated)]
    if not bag:
        cells = [Counter(set(c)) for c in cells]
    shared, n_gold, n_said = (c.total() for c in (cells[0] & cells[1], *cells))
    ratio = min(len(gold), len(stated)) / max(len(gold), len(stated))
    return (
        sum(
            round(x, 3)
            for x in (shared / n_said if n_said else 0.0, shared / n_gold if n_gold else 0.0, ratio)
        )
        / 3
    )


def _digits(x: Any) -> Any:
    return (
        float(f"{x:.{6 if isinstance(x, Single) else 10}g}")
        if isinstance(x, float | Decimal)
        else x
    )
