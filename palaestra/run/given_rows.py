"""Rows that a program hands over in place of a file: a list, a generator, a `datasets.Dataset`, a data
frame.

They are written as JSONL, so that everything that reads a run finds them where any data lies.
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Generator, Iterable, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

from palaestra.errors import UserError
from palaestra.run.origin import ACCEPT
from palaestra.settings import overrides, reading
from palaestra.settings.fields import Settings
from palaestra.settings.keywords import flags_as_keywords
from palaestra.store.checkpoint import make_folder, write_atomic
from palaestra.tasks.files import to_plain
from palaestra.tasks.records import SHAPE, kind, object_of

SETTINGS = ("data", "test_data")


@runtime_checkable
class PandasFrame(Protocol):
    """A data frame of pandas; one by itself is a sequence of the names of its columns."""

    columns: Any

    def notna(self) -> Any: ...

    def astype(self, dtype: type, /) -> Any: ...


@runtime_checkable
class PolarsFrame(Protocol):
    """A data frame of Polars, which is a sequence of its columns."""

    def to_dicts(self) -> Iterable[Any]: ...


@runtime_checkable
class ArrowTable(Protocol):
    """A table of Arrow, whose rows have no iterator; `num_rows` sets it apart from an array."""

    num_rows: int

    def to_pylist(self) -> Iterable[Any]: ...


def rows_of(given: Any, name: str) -> Iterable[Any]:
    """The rows of a table, a data frame or a sequence. Raises UserError for what has none."""
    if isinstance(given, PolarsFrame):
        return given.to_dicts()
    if isinstance(given, PandasFrame):
        whole = given.astype(object).where(given.notna(), None)  # an empty cell is NaN
        return whole.to_dict("records")
    if isinstance(given, ArrowTable):
        return given.to_pylist()
    if isinstance(given, Mapping) or not isinstance(given, Iterable):
        raise UserError(f"{name} is {kind(given)}; give a file or rows, [{SHAPE}]")
    return given


def take_rows(given: dict[str, Any]) -> dict[str, str]:
    """Takes rows out of settings: as JSONL, by setting; the file that they will be stands in their
    place.

    Of a `DatasetDict`, or any {"train": rows, "test": rows}, the second are the held-out problems.
    """
    rows: dict[str, Iterable[Any]] = {}
    for name in SETTINGS:
        if not isinstance(given.get(name), str | Path | None):
            rows[name] = given[name]
    if isinstance(splits := rows.get("data"), Mapping):
        if "train" not in splits or set(splits) - {"train", "test"} or "test_data" in given:
            raise UserError(
                f"data has the splits {', '.join(map(str, splits))}; give data=D['train'], "
                "test_data=D['test'], or a mapping of these two"
            )
        rows |= {"data": splits["train"]}
        rows |= {"test_data": splits["test"]} if "test" in splits else {}
    rows = {name: rows_of(new_row, name) for name, new_row in rows.items()}
    given |= {name: file_name(name) for name in rows}
    return {
        name: "".join(written(row, f"{name}, row {i}") for i, row in enumerate(new_row, 1))
        for name, new_row in rows.items()
    }


def file_name(setting: str) -> str:
    return f"{setting}.jsonl"


def check_rows(rows: Mapping[str, str], folder: Path, *, accept: bool) -> None:
    """That a run goes on with the rows that it was made with, unless changes are accepted."""
    for name, text in rows.items():
        path = folder / file_name(name)
        if not accept and path.exists() and path.read_text(encoding="utf-8") != text:
            raise UserError(
                f"--resume {folder}: these rows of {name} are not those that the run was made with; "
                f"give the same, or go on with these: {ACCEPT}"
            )


def keep_rows(rows: Mapping[str, str], folder: Path) -> dict[str, str]:
    """Writes rows into a folder; the settings that name the files."""
    files = {name: folder / file_name(name) for name in rows}
    for name, text in rows.items():
        write_atomic(files[name], text)
    return {name: str(path) for name, path in files.items()}


def written(row: Any, where: str) -> str:
    """A row as a line. Raises UserError for what JSON cannot hold."""
    try:
        return json.dumps(to_plain(object_of(row, where)), default=as_list) + "\n"
    except (TypeError, ValueError, RecursionError) as error:
        raise UserError(f"{where}: cannot be kept as JSON ({error}); leave that out") from None


def as_list(value: Any) -> Any:
    """Arrays and the scalars of numpy as plain values."""
    if hasattr(value, "tolist"):
        return value.tolist()
    raise TypeError(f"a {type(value).__name__}")


def found_beside(settings: Mapping[str, Any], folder: Path) -> dict[str, str]:
    """Of a run folder that was moved, or is named from elsewhere, the files that rows were kept
    in.
    """
    here = {n: folder / file_name(n) for n in SETTINGS if settings.get(n)}
    return {
        n: str(path)
        for n, path in here.items()
        if Path(settings[n]).name == path.name and not Path(settings[n]).exists() and path.exists()
    }


@contextmanager
def settings_of_call(
    model: str | Path, keywords: Mapping[str, Any], out: str | Path | None = None
) -> Generator[Settings]:
    """The settings of a call from a program, whose messages name keywords in place of flags. Rows among
    them are kept in `out`, or where there is none as long as the call lasts.
    """
    with flags_as_keywords(), tempfile.TemporaryDirectory() as place:
        given = dict(keywords)
        rows = take_rows(given)
        chosen = overrides.merge(Settings(), {**reading.check_types(given), "model": str(model)})
        home = make_folder(Path(out)) if out else Path(place)
        yield replace(chosen, **keep_rows(rows, home))
