"""Records (dictionaries) in sequences that know where each one stands.

Of a JSONL file only line offsets are held in memory. Whatever is wrong with a record is a
`UserError` that says where.
"""

from __future__ import annotations

import json
import os
import sys
import time
from array import array
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import accumulate, chain, count
from pathlib import Path
from typing import IO, Any, Protocol, TypeVar, cast

from palaestra.declared import declare
from palaestra.errors import UserError

Record = Mapping[str, Any]
T = TypeVar("T")
SHAPE = '{"prompt": "...", "answer": "..."}'
BOM = b"\xef\xbb\xbf"
# seconds until a reader is told that records are still being read, and between two such lines
FIRST_NOTE, NEXT_NOTE = 5.0, 30.0
NOTED = 512  # records between two looks at the clock
BLANK = b" \t\r\n" + BOM


@declare(
    columns=(
        ("demonstration", str, "a worked answer"),
        "demonstrations",
        "chosen",
        "rejected",
        ("chosen_before", tuple, "messages of the better reply before its last one"),
        ("rejected_before", tuple, "messages of the worse reply before its last one"),
        ("response_before", tuple, "messages of a recorded answer before its last one"),
        ("response", str, "a recorded answer"),
        ("right", bool, "whether the recorded answer is right"),
        "gap",
        "hint",
        "criteria",
        "points",
        ("document", str, "a text to be continued"),
        ("imitated", tuple, "places of the messages of the prompt that are demonstrated too"),
        ("facts", tuple, "what the answer should be built on"),
        ("sentence", str, "a sentence without errors"),
        ("tests", object, "what the code that is asked for must pass"),
        ("thought", str, "what is thought before a document goes on"),
        ("can", bool, "whether the model can do the task"),
        ("options", tuple, "the answers to choose from"),
    )
)
class Records(Protocol):
    """A sequence of records that knows where each one stands. Its iterators go on behind a record
    that raises.
    """

    @property
    def path(self) -> str | Path: ...
    def __len__(self) -> int: ...
    def __iter__(self) -> Iterator[Record]: ...
    def __getitem__(self, index: int) -> Record: ...
    def label(self, index: int) -> str: ...  # a name for the record, without folders
    def where(self, index: int) -> str: ...


class Lines:
    """JSONL, one object a line; blank lines are skipped.

    Args:
        shape: what a line looks like, for messages.
        unpacked: what holds the lines, where the file is a compressed one.
    """

    def __init__(self, path: Path, shape: str = SHAPE, unpacked: IO[bytes] | None = None):
        self.path, self.name, self.shape = path, path.name, shape
        self.stamp = path.stat().st_mtime_ns
        self.unpacked = unpacked  # the file on disk lives as long as this
        self.lines = path if unpacked is None else Path(unpacked.name)
        self.offsets, self.numbers, at = array("q"), array("q"), 0
        with self.lines.open("rb") as file:
            for number, line in enumerate(file, 1):
                if line.strip(BLANK):
                    self.offsets.append(at)
                    self.numbers.append(number)
                at += len(line)

    def __len__(self) -> int:
        return len(self.offsets)

    def __iter__(self) -> Iterator[Record]:
        return map(self._parse, count(), self._read())

    def _read(self) -> Iterator[bytes]:
        with self.lines.open("rb") as file:
            yield from (line for line in file if line.strip(BLANK))

    def __getitem__(self, index: int) -> Record:
        if self.path.stat().st_mtime_ns != self.stamp:
            raise UserError(f"{self.path}: the file was changed while it is in use; start again")
        with self.lines.open("rb") as file:
            file.seek(self.offsets[index])
            return self._parse(index, file.readline())

    def label(self, index: int) -> str:
        return f"{self.name}:{self.numbers[index]}"

    def where(self, index: int) -> str:
        return f"{self.path}:{self.numbers[index]}"

    def _parse(self, index: int, line: bytes) -> Record:
        where = self.where(index)
        try:
            value = json.loads(decode_text(line.removeprefix(BOM), where))
        except (json.JSONDecodeError, RecursionError, ValueError) as error:
            raise UserError(
                f"{where}: not JSON ({fault(error)}); every line must be one object, {self.shape}"
            ) from None
        if isinstance(value, list) and self.numbers[index] == 1:
            raise UserError(
                f"{where}: the file is one JSON list; name it {self.path.stem}.json, or write one "
                "object a line"
            )
        return object_of(value, where, self.shape)


class Listed:
    """Records that are in memory already, or in a mapped table: a JSON list, a Parquet table, a
    `datasets` split.
    """

    def __init__(self, path: str | Path, rows: Any, noun: str):
        self.path, self.name, self.rows, self.noun = path, Path(path).name, rows, noun

    def __len__(self) -> int:
        return len(self.rows)

    def __iter__(self) -> Iterator[Record]:
        return map(object_of, self.rows, map(self.where, count()))

    def __getitem__(self, index: int) -> Record:
        return object_of(self.rows[index], self.where(index))

    def label(self, index: int) -> str:
        return f"{self.name}:{index + 1}"

    def where(self, index: int) -> str:
        return f"{self.path}, {self.noun} {index + 1}"

    def are_equal(self) -> bool:
        """Whether they are rows of a table, and all the same."""
        return isinstance(self.rows, Rows) and self.rows.are_equal()


class Rows(Sequence[Any]):
    """A Parquet table as a sequence of dictionaries."""

    def __init__(self, table: Any):
        self.table, self.narrow = table, narrow_columns(table.schema)

    def __len__(self) -> int:
        return self.table.num_rows

    def __iter__(self) -> Iterator[Any]:
        return (
            with_short_floats(row, self.narrow)
            for batch in self.table.to_batches(max_chunksize=4096)
            for row in batch.to_pylist()
        )

    def __getitem__(self, index: Any) -> Any:
        return with_short_floats(self.table.slice(index, 1).to_pylist()[0], self.narrow)

    def are_equal(self) -> bool:
        """Whether all rows are the same: found in a second for tens of millions, which take minutes
        to be read one by one. Rows with lists or objects in them are not looked at.
        """
        import pyarrow.compute
        import pyarrow.types as t

        pc: Any = pyarrow.compute  # its functions are made when it is imported
        if not len(self) or any(t.is_nested(field.type) for field in self.table.schema):
            return False
        return all(
            chunk.null_count == len(chunk)
            if not first.is_valid
            else not chunk.null_count and pc.all(pc.equal(chunk, first)).as_py()
            for column in self.table.columns
            for first in [column[0]]
            for chunk in column.chunks
            if len(chunk)
        )


class SplitRows(Sequence[Any]):
    """A split of `datasets` as a sequence of dictionaries."""

    def __init__(self, split: Any):
        self.split = split
        features = getattr(split, "features", None)
        self.narrow = {} if features is None else narrow_columns(features.arrow_schema)

    def __len__(self) -> int:
        return len(self.split)

    def __iter__(self) -> Iterator[Any]:
        return (with_short_floats(row, self.narrow) for row in self.split)

    def __getitem__(self, index: Any) -> Any:
        return with_short_floats(self.split[index], self.narrow)


def narrow_columns(schema: Any) -> dict[str, Any]:
    """The columns of an Arrow schema that hold float32 or float16, at any depth, with their types."""
    return {field.name: field.type for field in schema if is_narrow(field.type)}


def is_narrow(kind: Any) -> bool:
    import pyarrow.types as t

    children = (kind.field(i).type for i in range(kind.num_fields))
    return t.is_float32(kind) or t.is_float16(kind) or any(map(is_narrow, children))


def with_short_floats(row: Any, narrow: Mapping[str, Any]) -> Any:
    """A row whose float32 and float16 values have the digits of their column: 0.1, not
    0.10000000149011612, which is what a double makes of it.
    """
    if not narrow or not isinstance(row, dict):
        return row
    given = cast("dict[str, Any]", row)
    return {k: short_floats(v, narrow[k]) if k in narrow else v for k, v in given.items()}


def short_floats(value: Any, kind: Any) -> Any:
    """A value of an Arrow type with its narrow floats as the shortest decimals that give them."""
    import numpy as np
    import pyarrow.types as t

    if value is None or not is_narrow(kind):
        return value
    if t.is_float32(kind):
        return float(str(np.float32(value)))
    if t.is_float16(kind):
        return float(str(np.float16(value)))
    if t.is_struct(kind):
        return {k: short_floats(v, kind.field(k).type) for k, v in value.items()}
    if t.is_map(kind):
        types = (kind.key_type, kind.item_type)
        return [tuple(map(short_floats, pair, types)) for pair in value]
    if t.is_list(kind) or t.is_large_list(kind) or t.is_fixed_size_list(kind):
        return [short_floats(v, kind.value_type) for v in value]
    return value


class Joined:
    """The records of several files, one after the other. Where two files have one name, labels name
    their folders too.
    """

    def __init__(self, path: str | Path, parts: Sequence[Records]):
        self.path, self.parts = path, parts
        self.ends = list(accumulate(len(p) for p in parts))
        folders = [str(Path(p.path).resolve().parent) for p in parts]
        names = {Path(p.path).name for p in parts}
        self.folders = [""] * len(parts)
        if len(names) < len(parts):
            top = os.path.commonpath(folders)
            self.folders = [f"{os.path.relpath(f, top)}/" for f in folders]

    def __len__(self) -> int:
        return self.ends[-1]

    def __iter__(self) -> Iterator[Record]:
        return chain.from_iterable(self.parts)

    def __getitem__(self, index: int) -> Record:
        n, at = self._place(index)
        return self.parts[n][at]

    def label(self, index: int) -> str:
        n, at = self._place(index)
        return self.folders[n] + self.parts[n].label(at)

    def where(self, index: int) -> str:
        n, at = self._place(index)
        return self.parts[n].where(at)

    def part_of(self, index: int) -> Records:
        """The file of a record."""
        return self.parts[self._place(index)[0]]

    def _place(self, index: int) -> tuple[int, int]:
        n = bisect_right(self.ends, index)
        return n, index - (self.ends[n - 1] if n else 0)


def each_record(records: Iterable[Record]) -> Iterator[Record | UserError]:
    """Every record once, or what is wrong with it, of an iterable that goes on behind a mistake."""
    rows = iter(records)
    while True:
        try:
            yield next(rows)
        except StopIteration:
            return
        except UserError as error:
            yield error


def with_notes(records: Iterable[T], path: str | Path, n: int) -> Iterator[T]:
    """The records as they are; while reading them takes long, a line on standard error now and then
    says how far it is and how long the rest takes.
    """
    begin = time.monotonic()
    due = begin + FIRST_NOTE
    for i, record in enumerate(records):
        if not i % NOTED and (now := time.monotonic()) >= due:
            left = (now - begin) / i * (n - i) if i else 0.0
            about = f"{left / 60:.0f} minutes" if left >= 90 else f"{left:.0f} seconds"
            print(
                f"note: {path}: {i:,} of {n:,} records are read, the rest takes about {about}",
                file=sys.stderr,
                flush=True,
            )
            due = now + NEXT_NOTE
        yield record


def decode_text(data: bytes, where: str) -> str:
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError as error:
        raise UserError(
            f"{where}: byte {error.start + 1} is not UTF-8; save the text as UTF-8"
        ) from None


def object_of(value: Any, where: str, shape: str = SHAPE) -> Record:
    if not isinstance(value, Mapping):
        raise UserError(f"{where}: {kind(value)}, not an object; write {shape}")
    return value


def kind(value: Any) -> str:
    """A value's type in JSON's words."""
    if value is None:
        return "null"
    names = {
        bool: "a boolean",
        str: "a string",
        int: "a number",
        float: "a number",
        list: "a list",
        dict: "an object",
    }
    return names.get(type(value), f"a {type(value).__name__}")


def describe_value(value: Any) -> str:
    """A value's type and the start of it."""
    return f"{kind(value)} ({str(value)[:40]!r})" if value is not None else "null"


def fault(error: Exception) -> str:
    """What is wrong with JSON, in few words."""
    if isinstance(error, json.JSONDecodeError):
        return f"{error.msg}, column {error.colno}"
    return "nested too deeply" if isinstance(error, RecursionError) else first_line(error)


def first_line(error: Exception) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0][:200]
