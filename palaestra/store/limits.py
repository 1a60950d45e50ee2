"""Files of a run folder that a stranger may have made: how much of them is read.

A Parquet file of a few kilobytes may stand for gigabytes: a text that a dictionary holds once and a
million rows name, a column of one value. So the counts and sizes in its footer are looked at first,
texts are read as dictionaries where they could be long, and what they unpack to is counted before it
is. What is above a limit is a UserError that says the limit; `raised` multiplies all of them.
"""

from __future__ import annotations

import json
import math
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from palaestra.errors import UserError

pc: Any = import_module("pyarrow.compute")  # its functions are made when it is imported

ROWS = 1_000_000  # of a rollout file
ALL_ROWS = 20_000_000  # of the rollout files of a run
VALUES = 200_000_000  # of one column, list elements counted one by one
BYTES = 1 << 30  # of the columns that are read of a file, unpacked
TEXT_BYTES = 1 << 28  # of a file of JSON or JSON lines, or of TOML
DEPTH = 32  # of lists and objects in each other
FLAG = "--limits"

# what pyarrow raises of a file that is none, is cut, or has columns of other types
UNREADABLE = (OSError, ValueError, TypeError, pa.ArrowException)

_factor = 1  # see `raised`


@contextmanager
def raised(factor: int) -> Generator[None]:
    """In the block every limit but DEPTH is so many times as high."""
    global _factor
    before, _factor = _factor, factor
    try:
        yield
    finally:
        _factor = before


def check_limit(place: Path, amount: int, limit: int, unit: str) -> None:
    """Raises UserError where there is more than may be read."""
    limit *= _factor
    if amount > limit:
        times = math.ceil(amount / (limit / _factor))
        raise UserError(
            f"{place}: {amount:,} {unit}, and no more than {limit:,} are read; if you trust it, "
            f"palaestra view {FLAG} {times}"
        )


# ---- Parquet


def open_rollouts(file: Path, columns: Sequence[str] | None = None) -> pq.ParquetFile:
    """A Parquet file whose footer is within the limits.

    Args:
        columns: those that are read; None = all.

    Raises:
        UserError: it is above a limit.
        OSError, ValueError: it is no regular file, or no Parquet.
    """
    if not file.is_file():  # a pipe would wait for ever
        raise OSError(f"{file} is no regular file")
    footer = pq.read_metadata(file)
    check_limit(file, footer.num_rows, ROWS, "rows")
    size, long = 0, set[str]()
    for g in range(footer.num_row_groups):
        group = footer.row_group(g)
        for i in range(group.num_columns):
            column = group.column(i)
            path = column.path_in_schema
            if columns is not None and path.partition(".")[0] not in columns:
                continue
            check_limit(file, column.num_values, VALUES, f"values of {path.partition('.')[0]}")
            size += column.total_uncompressed_size
            text = column.physical_type == "BYTE_ARRAY"
            if text and column.num_values * column.total_uncompressed_size > BYTES:
                long.add(path)
    check_limit(file, size, BYTES, "bytes")
    return pq.ParquetFile(file, read_dictionary=sorted(long))


def read_row_groups(
    opened: pq.ParquetFile, columns: Sequence[str] | None = None
) -> Generator[pa.Table]:
    """The row groups one after another: pyarrow reads no nested dictionaries across several."""
    for i in range(opened.num_row_groups):
        yield opened.read_row_group(i, columns=columns, use_threads=False)


def check_unpacked(file: Path, table: pa.Table) -> pa.Table:
    """The table, if what its dictionaries unpack to is within the limit. Raises UserError."""
    check_limit(file, sum(unpacked_size(c) for c in table.columns), BYTES, "bytes unpacked")
    return table


def unpacked_size(column: pa.Array | pa.ChunkedArray) -> int:
    """Bytes of a column without dictionaries."""
    if isinstance(column, pa.ChunkedArray):
        return sum(map(unpacked_size, column.chunks))
    if isinstance(column, pa.DictionaryArray):
        words: Any = column.dictionary
        if not (pa.types.is_string(words.type) or pa.types.is_binary(words.type)):
            return len(column) * 16
        each = pc.cast(pc.binary_length(words), pa.int64())
        return int(pc.sum(each.take(column.indices)).as_py() or 0)
    if isinstance(column, pa.ListArray | pa.LargeListArray):
        return unpacked_size(column.flatten())
    if isinstance(column, pa.StructArray):
        return sum(map(unpacked_size, column.flatten()))
    return column.nbytes


# ---- JSON


def read_text(path: Path) -> str:
    """The text of a regular file, "" of anything else. What is no UTF-8 becomes U+FFFD. Raises
    UserError for a file above the limit.
    """
    if not path.is_file():
        return ""
    check_limit(path, path.stat().st_size, TEXT_BYTES, "bytes")
    return path.read_text(encoding="utf-8", errors="replace")


def json_object(text: Any) -> dict[str, Any]:
    """A JSON object; of anything else, and of one that is nested too deep, an empty one."""
    try:
        value = json.loads(text or "{}")
    except (TypeError, ValueError, RecursionError):
        return {}
    return value if isinstance(value, dict) and is_shallow(value) else {}


def is_shallow(value: Any) -> bool:
    """Whether lists and objects are in each other at most DEPTH times."""
    level = [value] if isinstance(value, dict | list) else []
    for _ in range(DEPTH):
        level = [
            x
            for outer in level
            for x in (outer.values() if isinstance(outer, dict) else outer)
            if isinstance(x, dict | list)
        ]
        if not level:
            return True
    return False
