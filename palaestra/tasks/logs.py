"""Rows of a log that are no questions, read one by one."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, TypeVar

from palaestra.errors import UserError
from palaestra.tasks.columns import (
    FUNCTION,
    ColumnMap,
    Converted,
    check_there,
    parse_columns,
    resolve,
    sample,
)
from palaestra.tasks.omissions import RecordFaults
from palaestra.tasks.records import Record, Records, describe_value, each_record
from palaestra.tasks.sources import open_records

T = TypeVar("T")


def renamed(records: Records, columns: str) -> Converted:
    """The records with the columns that --columns names, as THEIRS=meta.arm, or a function makes."""
    if FUNCTION.fullmatch(columns):
        return Converted(records, ColumnMap(function=columns))
    first = sample(records)
    given = resolve(parse_columns(columns), first)
    check_there(given, first, str(records.path))
    return Converted(records, ColumnMap(columns=given))


def read_log_rows(
    path: str, read: Callable[[Record, str, str], T], columns: str, skip: str, shape: str
) -> tuple[list[T], str]:
    """The rows of a log, and a line about those that are left out ("" = none is).

    Args:
        path: as --data names it.
        read: makes one of a record, its place and the split of its file ("" = none); raises
            UserError for one at fault.
        skip: how many of these may be left out, see `palaestra.tasks.omissions`.
        shape: what a row looks like, for messages.

    Raises:
        UserError: more are at fault, or there is no row.
    """
    faults, rows = RecordFaults(), list[T]()
    for split, records in open_records(path).items():
        converted = renamed(records, columns)
        for i, record in enumerate(each_record(converted)):
            try:
                if isinstance(record, UserError):
                    raise record
                rows.append(read(record, converted.where(i), split))
            except UserError as error:
                faults.add(converted.where(i), error)
    note = faults.settle(skip, len(rows) + faults.n)
    if not rows:
        raise UserError(f"{path}: no rows; a row of a log is {shape}")
    return rows, note


def split_of_row(record: Record, where: str, split: str) -> str:
    """What the column `split` says, else the split of the file. Raises UserError for another word."""
    given = record.get("split")
    if given not in (None, "", "train", "test"):
        raise UserError(f"{where}: split is {given!r}; write 'train' or 'test'")
    return given or split


def finite(value: Any, what: str) -> float:
    """A number, or text of one, as tables have it. Raises UserError for what is none."""
    try:
        number = float(value) if isinstance(value, str | int | float) else math.nan
    except ValueError:
        number = math.nan
    if not math.isfinite(number):
        raise UserError(f"{what} is {describe_value(value)}; write a finite number")
    return number
