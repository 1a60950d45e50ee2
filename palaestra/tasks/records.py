"""Records (dictionaries) from files: JSONL, a JSON list, Parquet, a folder written by `datasets`.

Of a JSONL file only line offsets are held in memory. Whatever is wrong with a file is a `UserError`
that says where.
"""

from __future__ import annotations

import json
from array import array
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

from palaestra.errors import UserError
from palaestra.suggest import suggestion

Record = Mapping[str, Any]
SUFFIXES = (".jsonl", ".ndjson", ".json", ".parquet")
SHAPE = '{"prompt": "...", "answer": "..."}'
SAVED_FILES = ("dataset_info.json", "dataset_dict.json", "state.json")  # what `save_to_disk` leaves
BOM = b"\xef\xbb\xbf"
BLANK = b" \t\r\n" + BOM


class Records(Protocol):
    """A sequence of records that knows where each one stands."""

    @property
    def path(self) -> str | Path: ...
    def __len__(self) -> int: ...
    def __iter__(self) -> Iterator[Record]: ...
    def __getitem__(self, index: int) -> Record: ...
    def label(self, index: int) -> str: ...  # a name for the record, without folders
    def where(self, index: int) -> str: ...


class Lines:
    """JSONL, one object a line; blank lines are skipped. `shape`: what a line looks like, for
    messages.
    """

    def __init__(self, path: Path, shape: str = SHAPE):
        self.path, self.name, self.shape, self.stamp = (
            path,
            path.name,
            shape,
            path.stat().st_mtime_ns,
        )
        self.offsets, self.numbers, at = array("q"), array("q"), 0
        with path.open("rb") as file:
            for number, line in enumerate(file, 1):
                if line.strip(BLANK):
                    self.offsets.append(at)
                    self.numbers.append(number)
                at += len(line)

    def __len__(self) -> int:
        return len(self.offsets)

    def __iter__(self) -> Iterator[Record]:
        with self.path.open("rb") as file:
            lines = (line for line in file if line.strip(BLANK))
            for i, line in enumerate(lines):
                yield self._parse(i, line)

    def __getitem__(self, index: int) -> Record:
        if self.path.stat().st_mtime_ns != self.stamp:
            raise UserError(f"{self.path}: the file was changed while it is in use; start again")
        with self.path.open("rb") as file:
            file.seek(self.offsets[index])
            return self._parse(index, file.readline())

    def label(self, index: int) -> str:
        return f"{self.name}:{self.numbers[index]}"

    def where(self, index: int) -> str:
        return f"{self.path}:{self.numbers[index]}"

    def _parse(self, index: int, line: bytes) -> Record:
        where = self.where(index)
        try:
            found = json.loads(decode_text(line.removeprefix(BOM), where))
        except (json.JSONDecodeError, RecursionError, ValueError) as error:
            raise UserError(
                f"{where}: not JSON ({_fault(error)}); every line must be one object, {self.shape}"
            ) from None
        if isinstance(found, list) and self.numbers[index] == 1:
            raise UserError(
                f"{where}: the file is one JSON list; name it {self.path.stem}.json, or write one "
                "object a line"
            )
        return object_of(found, where, self.shape)


class Listed:
    """Records that are in memory already, or in a mapped table: a JSON list, a Parquet table, a
    `datasets` split.
    """

    def __init__(self, path: str | Path, rows: Any, noun: str):
        self.path, self.name, self.rows, self.noun = path, Path(path).name, rows, noun

    def __len__(self) -> int:
        return len(self.rows)

    def __iter__(self) -> Iterator[Record]:
        return (object_of(row, self.where(i)) for i, row in enumerate(self.rows))

    def __getitem__(self, index: int) -> Record:
        return object_of(self.rows[index], self.where(index))

    def label(self, index: int) -> str:
        return f"{self.name}:{index + 1}"

    def where(self, index: int) -> str:
        return f"{self.path}, {self.noun} {index + 1}"


class Rows(Sequence[Any]):
    """A Parquet table as a sequence of dictionaries."""

    def __init__(self, table: Any):
        self.table = table

    def __len__(self) -> int:
        return self.table.num_rows

    def __iter__(self) -> Iterator[Any]:
        return (
            row for batch in self.table.to_batches(max_chunksize=4096) for row in batch.to_pylist()
        )

    def __getitem__(self, index: Any) -> Any:
        return self.table.slice(index, 1).to_pylist()[0]


def open_records(given: str) -> dict[str, Records]:
    """The records of a file, under "", or of a saved `DatasetDict`, by split."""
    path = Path(given).expanduser()
    if path.is_dir():
        return saved_dataset(path)
    if not path.exists():
        folder = path.parent
        near = suggestion(path.name, [p.name for p in folder.iterdir()] if folder.is_dir() else [])
        raise UserError(f"{path}: no such file{near or f' (looked in {folder.resolve()})'}")
    try:
        return {"": _reader(path)}
    except PermissionError:
        raise UserError(
            f"{path}: no permission to read this file; change its mode or copy it"
        ) from None


def _reader(path: Path) -> Records:
    suffix = path.suffix.lower()
    if suffix not in SUFFIXES:
        raise UserError(
            f"{path}: cannot read {suffix or 'a file without suffix'}; write it as "
            f"{', '.join(SUFFIXES)}"
        )
    if path.stat().st_size == 0:
        raise UserError(f"{path}: the file is empty; it needs one record a problem, {SHAPE}")
    if suffix == ".parquet":
        return parquet(path)
    if suffix == ".json" and first_character(path) == b"[":
        return json_list(path)
    return Lines(path)


def first_character(path: Path) -> bytes:
    with path.open("rb") as file:
        return file.read(4096).removeprefix(BOM).lstrip()[:1]


def json_list(path: Path) -> Records:
    text = decode_text(path.read_bytes().removeprefix(BOM), str(path))
    try:
        return Listed(path, json.loads(text), "record")
    except json.JSONDecodeError as error:
        raise UserError(
            f"{path}:{error.lineno}: not JSON ({_fault(error)}); mend the list there"
        ) from None
    except (RecursionError, ValueError) as error:
        raise UserError(
            f"{path}: not JSON ({_fault(error)}); write one object a line into a .jsonl file"
        ) from None


def parquet(path: Path) -> Records:
    import pyarrow as pa
    from pyarrow.parquet import read_table

    try:
        return Listed(path, Rows(read_table(path, memory_map=True)), "row")
    except (pa.ArrowInvalid, OSError) as error:
        raise UserError(
            f"{path}: not a Parquet file ({_first_line(error)}); write it again"
        ) from None


def saved_dataset(path: Path) -> dict[str, Records]:
    """What `Dataset.save_to_disk` or `DatasetDict.save_to_disk` wrote."""
    if not any((path / name).exists() for name in SAVED_FILES):
        files = sorted(p.name for p in path.iterdir() if p.suffix in SUFFIXES)
        found = f"; name one of its files: {', '.join(files[:5])}" if files else ""
        raise UserError(
            f"{path}: a folder without a saved "
            f"dataset{found or '; write one with save_to_disk, or name a file'}"
        )
    try:
        from datasets import DatasetDict, load_from_disk
    except ImportError:
        raise UserError(
            f"{path}: reading a saved dataset needs: pip install 'palaestra[datasets]'"
        ) from None
    try:
        loaded = load_from_disk(str(path))
    except Exception as error:  # the library raises many kinds for a damaged folder
        raise UserError(
            f"{path}: cannot load this dataset ({_first_line(error)}); save it again"
        ) from None
    if isinstance(loaded, DatasetDict):
        return {str(k): Listed(f"{path}/{k}", v, "row") for k, v in loaded.items()}
    return {"": Listed(path, loaded, "row")}


def decode_text(data: bytes, where: str) -> str:
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError as error:
        raise UserError(
            f"{where}: byte {error.start + 1} is not UTF-8; save the text as UTF-8"
        ) from None


def object_of(found: Any, where: str, shape: str = SHAPE) -> Record:
    if not isinstance(found, Mapping):
        raise UserError(f"{where}: {kind(found)}, not an object; write {shape}")
    return found


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


def _fault(error: Exception) -> str:
    if isinstance(error, json.JSONDecodeError):
        return f"{error.msg}, column {error.colno}"
    return "nested too deeply" if isinstance(error, RecursionError) else _first_line(error)


def _first_line(error: Exception) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0][:200]
