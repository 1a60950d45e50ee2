"""A run folder as the viewer sees it: tables of episodes without their tokens, their texts, and one
group with its tokens.

Files of a run that goes on, was killed, or is of another version are read as far as they can be;
nothing is imported here that loads a model.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from palaestra.errors import UserError
from palaestra.pictures import FIRST_PLACE, Picture, digest_of
from palaestra.sounds import sound_address, sound_of
from palaestra.store.columns import SCHEMA
from palaestra.store.folder import (
    NO_PLACE,
    is_run,
    is_step,
    read_config,
    read_summary,
    records,
)
from palaestra.store.limits import (
    ALL_ROWS,
    UNREADABLE,
    check_limit,
    check_unpacked,
    json_object,
    open_rollouts,
    read_row_groups,
)
from palaestra.store.reading import number
from palaestra.view.cache import TableCache
from palaestra.view.heard import FAILED, heard
from palaestra.view.pixels import data_address

pc: Any = import_module("pyarrow.compute")  # its functions are made when it is imported

TRAINING = "training"
WHOLE = ("step", "group", "sample", "oldest_version", "policy_version", "n_tokens", "seconds")
# 0 where a file says none, or one below
PLACE = ("step", "group", "sample", "n_tokens")
TEXTS = ("task_id", "domain", "prompt", "answer", "text", "status", "kept")
NAMES = ("task_id", "domain", "status", "kept")  # few different ones: kept as dictionaries
MOST_PARTS = 16  # parts of the reward that have a column
BY_TOKEN = ("tokens", "trained", "hidden", "logp", "advantage", "weight", "ratio", "author", "turn")
MOST_ROWS = 200  # whose beginnings are told at once
EXCERPT = 200  # characters
READERS = 4  # files at a time
STEP = re.compile(r"step-(\d+)\.parquet")


class EpisodeTable:
    """The episodes of a run's training, or of one of its evaluations."""

    def __init__(self, folder: Path, name: str, cache: TableCache):
        self.folder, self.name, self.cache = folder, name, cache
        self.files: list[Path] = []
        self.index = scan([])
        self._texts: pa.Table | None = None
        self._stamp: list[Any] = []
        self._rows: dict[Any, int] = {}  # of each file, as it was
        self._lock = threading.RLock()

    @property
    def _label(self) -> str:
        """A name for the cache, whatever the evaluation is called."""
        return re.sub(r"\W", "_", self.name)

    def refresh(self) -> None:
        """Takes in what was written since. A resumed run replaces files."""
        with self._lock:
            steps = (f for f in self.folder.glob("step-*.parquet") if STEP.fullmatch(f.name))
            files = sorted(f for f in steps if f.is_file())
            stamp = [(f.name, (s := f.stat()).st_size, s.st_mtime_ns) for f in files]
            if stamp == self._stamp:
                return
            self._check_rows(files, stamp)
            self.index = self.cache.table(f"{self._label}-index", files, scan)
            self.files, self._stamp, self._texts = files, stamp, None

    def _check_rows(self, files: Sequence[Path], stamp: Sequence[Any]) -> None:
        """Raises UserError where the files hold more episodes than a page can show."""
        for file, key in zip(files, stamp, strict=True):
            if key not in self._rows:
                try:
                    self._rows[key] = open_rollouts(file, ()).metadata.num_rows
                except UNREADABLE:
                    self._rows[key] = 0
        check_limit(self.folder, sum(self._rows[k] for k in stamp), ALL_ROWS, "rows")

    def arrow(self) -> bytes:
        """The index as an Arrow stream."""
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, self.index.schema) as out:
            out.write_table(self.index)
        return sink.getvalue().to_pybytes()

    # ---- texts

    @property
    def texts(self) -> pa.Table:
        return self.read_texts()

    def read_texts(self) -> pa.Table:
        """Prompt and text of each row of the index, and what was heard, see `view.heard`."""
        with self._lock:
            if self._texts is None:
                self._texts = self.cache.table(f"{self._label}-texts", self.files, scan_texts)
            return self._texts

    def search(self, words: str) -> list[int]:
        """Rows that hold the words, in what was asked, said or heard, in any case; /.../ is a
        regular expression. RE2 reads it, so no pattern takes longer than the texts are long.
        """
        is_pattern = len(words) > 2 and words[0] == words[-1] == "/"
        find = pc.match_substring_regex if is_pattern else pc.match_substring
        pattern, texts = words[1:-1] if is_pattern else words, self.texts
        try:
            hits = [find(texts[k], pattern, ignore_case=True) for k in ("text", "prompt", "heard")]
        except pa.ArrowInvalid:
            raise UserError(f"{pattern}: no regular expression") from None
        known = [np.asarray(pc.fill_null(hit, False)) for hit in hits]
        return np.flatnonzero(np.any(known, axis=0)).tolist()

    def excerpts(self, rows: Sequence[int]) -> list[dict[str, str]]:
        """The beginnings of the texts of some rows."""
        known = [r for r in rows[:MOST_ROWS] if 0 <= r < self.texts.num_rows]
        texts = self.texts.take(pa.array(known, pa.int64())).to_pylist()
        return [{k: (v or "")[:EXCERPT] for k, v in row.items()} for row in texts]

    # ---- one group

    def file_of(self, step: int) -> Path | None:
        return next((f for f in self.files if f.name == f"step-{step:06d}.parquet"), None)

    def group(self, step: int, group: int) -> list[dict[str, Any]]:
        """The episodes of a group with all contexts, column by column."""
        file = self.file_of(step)
        if file is None:
            return []
        return [episode(line) for line in read_group(file, group)]


class RunReader:
    """A run folder, or that of a pipeline's part."""

    def __init__(self, folder: Path, cache_home: Path | None = None, name: str = ""):
        self.folder, self.name = folder, name or folder.resolve().name
        self.cache = TableCache(folder, cache_home)
        self.tables = {TRAINING: EpisodeTable(folder / "rollouts", TRAINING, self.cache)}
        self.refresh()

    def refresh(self) -> None:
        for place in sorted((self.folder / "evaluations").rglob("*")):
            if place.is_dir() and any(place.glob("step-*.parquet")):
                name = str(place.relative_to(self.folder / "evaluations"))
                if name not in self.tables:
                    self.tables[name] = EpisodeTable(place, name, self.cache)
        for table in self.tables.values():
            table.refresh()

    def table(self, name: str) -> EpisodeTable:
        if name not in self.tables:
            raise UserError(f"{self.name} has no episodes of {name!r}")
        return self.tables[name]

    @property
    def main(self) -> EpisodeTable:
        """Its training, or where nothing was trained the first of its evaluations."""
        return next((t for t in self.tables.values() if t.index.num_rows), self.tables[TRAINING])

    @property
    def config(self) -> dict[str, Any]:
        return read_config(self.folder)

    @property
    def summary(self) -> dict[str, Any]:
        return read_summary(self.folder)

    @property
    def metrics(self) -> list[dict[str, Any]]:
        """The lines of metrics.jsonl."""
        return records(self.folder / "metrics.jsonl")

    @property
    def about(self) -> dict[str, Any]:
        """What the head of the page tells; a page that lives asks for it again and again."""
        lines = self.folder / "metrics.jsonl"
        log = lines.stat() if lines.is_file() else None
        return {
            "name": self.name,
            "config": self.config,
            "summary": shareable(self.summary),
            "main": self.main.name,
            "log": [log.st_size, log.st_mtime_ns] if log else [],
            "tables": {
                n: {"rows": t.index.num_rows, "files": len(t.files)} for n, t in self.tables.items()
            },
        }


def shareable(summary: Mapping[str, Any]) -> dict[str, Any]:
    """A summary without places on this machine, as the page may be passed on."""
    places = ("command", "resume_command", "artifacts", "out", "packages")
    return {k: v for k, v in summary.items() if k not in places}


def open_runs(folders: Sequence[Path], cache_home: Path | None = None) -> list[RunReader]:
    """The runs of these folders: a folder that holds runs stands for all of them, a pipeline for its
    parts. Raises UserError where there is none.
    """
    readers: list[RunReader] = []
    for folder in folders:
        if is_run(folder):
            parts = [p for p in sorted(folder.glob("*")) if (p / "metrics.jsonl").is_file()]
            alone = (folder / "metrics.jsonl").is_file() or not parts
            readers += [RunReader(folder, cache_home)] if alone else []
            readers += [
                RunReader(p, cache_home, f"{folder.resolve().name}/{p.name}") for p in parts
            ]
        else:
            inside = [p for p in sorted(folder.glob("*")) if is_run(p)] if folder.is_dir() else []
            if not inside:
                raise UserError(f"{folder} is not a run folder and holds none: {NO_PLACE}")
            readers += open_runs(inside, cache_home)
    return readers


# ---- columns


def read(files: Sequence[Path], columns: Sequence[str]) -> pa.Table:
    """Some columns of files of any version; what a file lacks is null, and one that cannot be read
    has no rows. (pyarrow.dataset could do so as well, and would import pandas.)
    """
    schema = pa.schema([SCHEMA.field(n) for n in columns])
    with ThreadPoolExecutor(READERS) as pool:
        return pa.concat_tables(
            [schema.empty_table(), *pool.map(lambda f: read_one(f, schema), files)]
        )


def read_one(file: Path, schema: pa.Schema) -> pa.Table:
    """Raises UserError for a file above a limit, see `store.limits`."""
    try:
        opened = open_rollouts(file, schema.names)
        there = [n for n in schema.names if n in opened.schema_arrow.names]
        parts = [check_unpacked(file, part) for part in read_row_groups(opened, there)]
        return pa.concat_tables([schema.empty_table(), *(conform(p, schema) for p in parts)])
    except UNREADABLE:
        return schema.empty_table()


def conform(part: pa.Table, schema: pa.Schema) -> pa.Table:
    """The columns of a schema; what is not there is null."""
    nulls = lambda field: pa.nulls(part.num_rows, field.type)
    there = part.column_names
    given = [part[f.name].cast(f.type) if f.name in there else nulls(f) for f in schema]
    return pa.table(given, schema=schema)


def read_group(file: Path, group: int) -> list[dict[str, Any]]:
    """The episodes of a group; of a file with row groups no more of them than may hold it, and
    of one that cannot be read none. Raises UserError for a file above a limit.
    """
    try:
        opened = open_rollouts(file)
        lines: list[dict[str, Any]] = []
        for i in range(opened.num_row_groups):
            if _may_hold(opened, i, group):
                part = opened.read_row_group(i)
                mine = part.filter(pc.equal(part["group"], group))
                lines += check_unpacked(file, mine).to_pylist()
        return [dict.fromkeys(SCHEMA.names) | line for line in lines]
    except (*UNREADABLE, KeyError):
        return []


def _may_hold(opened: pq.ParquetFile, i: int, group: int) -> bool:
    at = opened.schema_arrow.names.index("group")
    known = opened.metadata.row_group(i).column(at).statistics
    return known is None or not known.has_min_max or known.min <= group <= known.max


def scan(files: Sequence[Path]) -> pa.Table:
    """The index: a row an episode, without texts and tokens."""
    wanted = [*WHOLE, *NAMES, "muted", "reward", "solved", "advantage", "reward_parts", "facts"]
    table_columns = read(files, wanted)
    columns: dict[str, Any] = {n: table_columns[n] for n in (*WHOLE, "muted", "solved")}
    columns |= {
        n: pc.max_element_wise(table_columns[n], pa.scalar(0, table_columns[n].type)) for n in PLACE
    }
    columns |= {n: pc.cast(table_columns[n], pa.float32()) for n in ("reward", "advantage")}
    failed = pc.match_substring_regex(table_columns["facts"], FAILED)
    columns["tool_failed"] = pc.cast(pc.fill_null(failed, False), pa.int8())
    for n in NAMES:
        coded = pc.fill_null(table_columns[n], "").combine_chunks().dictionary_encode()
        columns[n] = coded
    return pa.table(columns | part_columns(table_columns["reward_parts"]))


def scan_texts(files: Sequence[Path]) -> pa.Table:
    """What was asked, said and heard."""
    parts = [read([file], ("prompt", "text")) for file in files]
    heard_by = [heard(f, p.num_rows) for f, p in zip(files, parts, strict=True)]
    empty = read((), ("prompt", "text")).append_column("heard", pa.array([], pa.string()))
    return pa.concat_tables(
        [empty, *(p.append_column("heard", h) for p, h in zip(parts, heard_by, strict=True))]
    )


def part_columns(column: pa.ChunkedArray) -> dict[str, pa.Array]:
    """Named parts of the reward as columns "part/NAME". Different texts are few, so each is read
    once.
    """
    coded = column.combine_chunks().dictionary_encode()
    read_once = [json_object(t) for t in coded.dictionary.to_pylist()]
    names = list(dict.fromkeys(k for r in read_once for k in r))[:MOST_PARTS]
    return {
        f"part/{n}": pa.array([number(r.get(n)) for r in read_once], pa.float32()).take(
            coded.indices
        )
        for n in names
    }


def episode(line: dict[str, Any]) -> dict[str, Any]:
    """A line of a rollout file as the page takes it: JSON objects read, pictures as PNG, sounds as WAV."""
    objects = {k: json_object(line.pop(k, None)) for k in ("reward_parts", "facts")}
    given = tuple(line.pop(k, None) or () for k in ("pictures", "sounds", "rows"))
    try:
        pictures = {_digest(p): data_address(p) for p in given[0]}
        sounds = [sound_of(s["data"], s["rate"]) for s in given[1]]
        pictures |= {s.digest: sound_address(s) for s in sounds}
        rows = [context(r, pictures) for r in given[2]]
    except (TypeError, ValueError, KeyError, AttributeError):  # columns of other types
        rows = []
    texts = {k: x if isinstance(x := line.get(k), str) else None for k in TEXTS}
    numbers = {k: number(line.get(k)) for k in ("reward", "advantage")}
    return {**line, **texts, **numbers, **objects, "rows": rows}


def _digest(picture: Mapping[str, Any]) -> int:
    shape = (picture["height"], picture["width"], picture["channels"])
    try:
        return Picture(shape=shape, data=picture["data"] or b"").digest
    except (ValueError, TypeError):
        return -1


def context(row: Mapping[str, Any], pictures: Mapping[int, str]) -> dict[str, Any]:
    """`shown`: at the first place of each picture or sound its address."""
    seat_columns = {"seat": row.get("seat") or "", "thread": row.get("thread") or ""}
    seat_columns |= {k: row.get(k) for k in BY_TOKEN} | {"said": row.get("said") or []}
    by_place: dict[int, str] = {}
    before = None
    for i, token in enumerate(row.get("ids") or () if pictures else ()):
        digest = digest_of(token) if token >= FIRST_PLACE else None
        if digest is not None and digest != before:
            by_place[i] = pictures.get(digest, "")
        before = digest
    return {**seat_columns, "shown": by_place}


def steps_of(metrics: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    return [r for r in metrics if is_step(r)]
