"""Copies of rows, changed in one place, that give an instance what the given rows lack: equal values
(ties), NULLs, or values beside the literals of a reference query.
"""

from __future__ import annotations

import datetime
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, TypeAlias

from palaestra.types import value_class
from palaestra.verifiers.sql.instances import DAY, values_beside
from palaestra.verifiers.sql.tables import Added, place

Change: TypeAlias = tuple[int, dict[str, Any]]  # the row that is copied, and its other values
MOST_COPIES = 120  # about so many rows are added to a table


@value_class
class TableShape:
    """A table as far as new rows must fit it. Generated columns are left out.

    `required`: columns that take no NULL. `unique`: groups of columns that no two rows may have
    alike, the primary key among them. `refers`: columns of foreign keys; `targets`: those alone, and
    the values that they may refer to. `bundles`: columns outside
    the primary key, grouped by what must change together.
    """

    columns: tuple[str, ...]
    rows: tuple[tuple[Any, ...], ...]
    required: frozenset[str]
    unique: tuple[tuple[str, ...], ...]
    refers: frozenset[str]
    targets: Mapping[str, tuple[Any, ...]]
    bundles: tuple[tuple[str, ...], ...]

    def values(self, column: str) -> list[Any]:
        i = self.columns.index(column)
        return [row[i] for row in self.rows]


def make_copies(
    shape: TableShape, added: Added, literals: Sequence[int | float | str] = ()
) -> list[tuple[Any, ...]]:
    """New rows for a table, in the order of its columns: of the kind `added`, or, without one,
    with values at and beside the literals. Unique columns get values that no row has.
    """
    if not shape.rows:
        return []
    changes = _ties(shape) if added == "ties" else _nulls(shape) if added else None
    writer = _CopyWriter(shape, rename=added != "ties")
    copies = [writer.copy(*change) for change in changes or _beside(shape, literals)]
    return [row for row in copies if row]


def _ties(shape: TableShape) -> Iterator[Change]:
    """Rows that equal another in all columns but their keys and one bundle, whose values are those
    of a third row. References lead to every second row that nothing refers to.
    """
    alone = {c for group in shape.unique if len(group) == 1 for c in group}
    keys = [(c,) for group in shape.unique if len(group) > 1 for c in group]
    parts = [part for part in dict.fromkeys((*shape.bundles, *keys)) if not alone >= set(part)]
    unused = {
        c: [x for x in targets if x not in set(shape.values(c))][::2]
        for c, targets in shape.targets.items()
    }
    n = len(shape.rows)
    for i in _spread(shape, len(parts)):
        if n == 1 or not parts:
            yield i, {}
        for j, part in enumerate(parts if n > 1 else ()):
            other = shape.rows[(i + 1 + j % (n - 1)) % n]
            change = {c: x for c, x in zip(shape.columns, other, strict=True) if c in part}
            if childless := unused.get(part[0]):
                change[part[0]] = childless[i % len(childless)]
            yield i, change


def _nulls(shape: TableShape) -> Iterator[Change]:
    """Rows with NULL in one bundle, in its columns that allow it and are no keys."""
    keys = {c for group in shape.unique for c in group}
    open_to_null = [[c for c in part if c not in shape.required | keys] for part in shape.bundles]
    parts = [part for part in open_to_null if part]
    for i in _spread(shape, len(parts)) if parts else ():
        for part in parts:
            yield i, dict.fromkeys(part)


def _beside(shape: TableShape, literals: Sequence[int | float | str]) -> Iterator[Change]:
    """Rows in which one column has a value at or beside a literal: a column that no other one
    determines, and that refers to nothing.
    """
    n = 0
    for part in shape.bundles:
        for column in part if len(part) == 1 and part[0] not in shape.refers else ():
            for value in values_beside(literals, shape.values(column)):
                n += 1
                yield n % len(shape.rows), {column: value}


def _spread(shape: TableShape, parts: int) -> list[int]:
    """Rows to copy: all, or those with the greatest and the least value of each column and others
    from everywhere.
    """
    n, most = len(shape.rows), max(2, MOST_COPIES // max(1, parts))
    if n <= most:
        return list(range(n))
    known = [
        [i for i, x in enumerate(column) if x is not None]
        for column in zip(*shape.rows, strict=True)
    ]
    ends = [
        end(ids, key=lambda i, c=c: (place(shape.rows[i][c]), -i))
        for end in (max, min)
        for c, ids in enumerate(known)
        if ids and all(isinstance(shape.rows[i][c], int | float | str) for i in ids)
    ]
    return list(dict.fromkeys((*ends, *range(0, n, max(1, n // most)))))[:most]


class _CopyWriter:
    """Writes copies of rows with keys of their own. `rename`: text that differs in all rows still
    does.
    """

    def __init__(self, shape: TableShape, *, rename: bool) -> None:
        self.shape, self.n = shape, 0
        self.values = {c: shape.values(c) for c in shape.columns}
        self.alone = {group[0] for group in shape.unique if len(group) == 1} - shape.refers
        unlike = {c for c, v in self.values.items() if _are_names(v)}
        self.renamed = unlike - shape.refers - self.alone if rename else set[str]()
        self.taken = {
            group: set(map(repr, zip(*(self.values[c] for c in group), strict=True)))
            for group in shape.unique
        }

    def copy(self, index: int, change: dict[str, Any]) -> tuple[Any, ...] | None:
        """The copy, or None if no key is free for it."""
        self.n += 1
        row = dict(zip(self.shape.columns, self.shape.rows[index], strict=True)) | change
        for c in self.alone - change.keys():
            row[c] = _next_value(self.values[c], row[c], self.n)
        for c in self.renamed - change.keys():
            row[c] = f"{row[c]} {self.n}" if isinstance(row[c], str) else row[c]
        if not all(self._frees(group, row, change) for group in self.taken):
            return None
        for group, taken in self.taken.items():
            taken.add(repr(tuple(row[c] for c in group)))
        return tuple(row.values())

    def _frees(self, group: tuple[str, ...], row: dict[str, Any], change: dict[str, Any]) -> bool:
        """Whether the group's values are free, if need be with one of them from another row."""

        def is_free(values: dict[str, Any]) -> bool:
            cells = tuple(values[c] for c in group)
            return None in cells or repr(cells) not in self.taken[group]

        if is_free(row):
            return True
        for c in group if len(group) > 1 else ():
            for value in self.values[c] if c not in change else ():
                if is_free({**row, c: value}):
                    row[c] = value
                    return True
        return False


def _are_names(values: Sequence[Any]) -> bool:
    """Whether values are text that differs in all rows, and none of it a number or a date."""
    known = [x for x in values if x is not None]
    return len(set(map(repr, values))) == len(values) and all(
        isinstance(x, str) and not x[:1].isdigit() for x in known
    )


def _next_value(values: Sequence[Any], value: Any, n: int) -> Any:
    """The n-th value behind those of a unique column, of their kind; `value` if there is none."""
    known = [x for x in values if x is not None]
    try:
        if all(isinstance(x, str) for x in known):
            return _next_text(known, value, n)
        step = datetime.timedelta(days=n) if isinstance(known[0], datetime.date) else n
        return max(known) + step
    except (TypeError, ValueError, OverflowError):
        return value


def _next_text(known: Sequence[str], value: Any, n: int) -> Any:
    if known and all(map(DAY.fullmatch, known)):
        return str(datetime.date.fromisoformat(max(known)) + datetime.timedelta(days=n))
    if known and all(x.isascii() and x.isdigit() for x in known):
        return str(max(map(int, known)) + n).zfill(len(known[0]))
    return f"{value} {n}"
