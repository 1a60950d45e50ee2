"""Result tables of queries, safely: read-only, one statement, with limits of time, rows and bytes. sqlite, or duckdb (extra).

A database is a script (`schema`: tables and rows) or a file.
"""

from __future__ import annotations

import contextlib
import math
import re
import sqlite3
import sys
import threading
import time
from collections import Counter
from collections.abc import Generator, Iterable
from functools import lru_cache
from pathlib import Path
from typing import Any, Literal, TypeAlias

from palaestra.types import Fault, UserError, value

Engine: TypeAlias = Literal["sqlite", "duckdb"]
Rows: TypeAlias = tuple[tuple[Any, ...], ...]
Half: TypeAlias = Literal["", "odd", "even"]
ALLOWED = {sqlite3.SQLITE_SELECT, sqlite3.SQLITE_READ, sqlite3.SQLITE_FUNCTION, sqlite3.SQLITE_RECURSIVE}
MOST_ROWS = 10_000
MOST_BYTES = 20_000_000  # of a result
LONGEST_VALUE = 500_000  # bytes of a value, and of a row of a table
COLUMNS = 500  # of a table, and of a result: a row of them is read whole
COPIED = 20_000_000  # bytes of a database file that is thinned at most: its halves are kept


@value
class Database:
    """Where queries run. `half` = with only the odd or even rows of each table: another instance of the same schema."""

    schema: str = ""
    path: str = ""
    engine: Engine = "sqlite"
    half: Half = ""


@value
class Table:
    """What a query gave. error: "" | "timeout" | why it did not run."""

    rows: Rows = ()
    error: str = ""


def run(query: str, database: Database, seconds: float) -> Table:
    """The result of a model's query. It can only read."""
    return (duckdb_rows if database.engine == "duckdb" else sqlite_rows)(query, database, seconds)


@lru_cache(maxsize=4096)
def gold_rows(query: str, database: Database, seconds: float) -> Table:
    """The result of the reference query, which must run."""
    found = run(query, database, seconds)
    if found.error:
        raise UserError(f"the reference query {query[:80]!r} fails: {found.error}; mend it, or its database")
    return found


def sqlite_rows(query: str, database: Database, seconds: float) -> Table:
    with opened(database) as connection:
        end = time.monotonic() + seconds
        connection.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, LONGEST_VALUE)
        connection.setlimit(sqlite3.SQLITE_LIMIT_COLUMN, COLUMNS)
        connection.setlimit(sqlite3.SQLITE_LIMIT_EXPR_DEPTH, 200)
        connection.setlimit(sqlite3.SQLITE_LIMIT_LIKE_PATTERN_LENGTH, 200)
        connection.set_authorizer(permitted)
        connection.set_progress_handler(lambda: time.monotonic() > end, 1000)
        try:
            return table(connection.execute(query))
        except (sqlite3.Error, sqlite3.Warning, ValueError, OverflowError, MemoryError, UnicodeError) as error:
            return Table(error="timeout" if "interrupted" in str(error) else str(error) or "no statement")


def permitted(action: int, first: Any, second: Any, *_: Any) -> int:
    denied = action not in ALLOWED or (action == sqlite3.SQLITE_FUNCTION and second == "load_extension")
    return sqlite3.SQLITE_DENY if denied else sqlite3.SQLITE_OK


@contextlib.contextmanager
def opened(database: Database) -> Generator[sqlite3.Connection]:
    """A connection to the file, read-only, or to a fresh copy of the script's database or of half the file."""
    try:
        connection = _connected(database)
    except sqlite3.Error as error:
        raise UserError(f"the database {database.path or 'of the schema'} cannot be opened: {error}") from None
    try:
        yield connection
    finally:
        connection.close()


def _connected(database: Database) -> sqlite3.Connection:
    if database.path and not database.half:
        connection = sqlite3.connect(f"{file_of(database).as_uri()}?mode=ro", uri=True)
    else:
        connection = sqlite3.connect(":memory:")
        connection.deserialize(_image(database, file_of(database).stat().st_mtime_ns if database.path else 0))
    connection.text_factory = lambda raw: raw.decode("utf-8", "replace")
    return connection


@lru_cache(maxsize=16)
def _image(database: Database, changed: int) -> bytes:
    """The pages of a database after its script, or of half a file; `changed` is the file's last change."""
    with contextlib.closing(sqlite3.connect(":memory:")) as connection:
        connection.executescript(database.schema)
        connection.commit()
        connection.execute("PRAGMA user_version = 0")  # gives an empty database its first page
        if database.path:
            with contextlib.closing(sqlite3.connect(f"{file_of(database).as_uri()}?mode=ro", uri=True)) as file:
                file.backup(connection)
        connection.text_factory = lambda raw: raw.decode("utf-8", "replace")
        tables = "SELECT name FROM sqlite_master WHERE type = 'table'"
        for (name,) in connection.execute(tables).fetchall() if database.half else ():
            with contextlib.suppress(sqlite3.Error):  # a table without row numbers stays whole
                connection.execute(deletion(name, database.half == "even"))
        connection.commit()
        return connection.serialize()


def file_of(database: Database) -> Path:
    path = Path(database.path).resolve()
    if not path.is_file():
        raise UserError(f"the database {database.path} does not exist; give the path of a file")
    return path


def deletion(table: str, odd: bool) -> str:
    """Of every second row: of those with an odd number, or of the others."""
    return 'DELETE FROM "{}" WHERE (rowid % 2 <> 0) = {}'.format(table.replace('"', '""'), odd)


def duckdb_rows(query: str, database: Database, seconds: float) -> Table:
    try:
        import duckdb  # pyright: ignore[reportMissingImports]
    except ImportError:
        raise Fault("verifier", "duckdb is not installed; pip install 'palaestra[duckdb]'") from None
    with contextlib.closing(_cursor(database)) as connection:
        timer = threading.Timer(seconds, connection.interrupt)
        timer.start()
        try:
            statements = connection.extract_statements(query)
            if len(statements) != 1 or statements[0].type != duckdb.StatementType.SELECT:
                return Table(error="not one SELECT statement")
            connection.execute("BEGIN TRANSACTION READ ONLY")  # or a sequence would count on for the next query
            return table(iter(connection.execute(statements[0]).fetchone, None))
        except (duckdb.Error, RuntimeError, ValueError) as error:
            if isinstance(error, duckdb.FatalException | duckdb.InternalException):
                _instance.cache_clear()  # a database that broke refuses every later query
            return Table(error="timeout" if "nterrupt" in str(error) else str(error)[:200] or "no statement")
        finally:
            timer.cancel()


def _cursor(database: Database) -> Any:
    """A connection of its own to the file, read-only, or to the kept database of the script or of half the file."""
    import duckdb

    if database.half or not database.path:
        return _instance(database, file_of(database).stat().st_mtime_ns if database.path else 0).cursor()
    try:
        return _locked(duckdb.connect(str(file_of(database)), read_only=True))
    except duckdb.Error as error:
        raise UserError(f"the database {database.path} cannot be opened: {str(error)[:200]}") from None


@lru_cache(maxsize=16)
def _instance(database: Database, changed: int) -> Any:
    """A script's database, or half a file, in memory; `changed` is the file's last change. Making one takes 20 ms."""
    import duckdb

    connection = duckdb.connect(":memory:", config={"threads": 1})
    try:
        connection.execute(database.schema or "SELECT 1")
        if database.path:
            file = str(file_of(database)).replace("'", "''")
            connection.execute(f"ATTACH '{file}' AS file (READ_ONLY); COPY FROM DATABASE file TO memory; DETACH file")
        for (name,) in connection.execute("SELECT table_name FROM duckdb_tables()").fetchall() if database.half else ():
            with contextlib.suppress(duckdb.Error):  # a table that others refer to stays whole
                connection.execute(deletion(name, database.half == "odd"))  # rows are counted from 0
    except duckdb.Error as error:
        raise UserError(f"the schema does not run: {str(error)[:200]}") from None
    return _locked(connection)


def _locked(connection: Any) -> Any:
    """With no access to files or the network, 512 MB, one thread, and settings that stay so."""
    for setting in (
        "enable_external_access = false",
        "memory_limit = '512MB'",
        "threads = 1",
        "lock_configuration = true",
    ):
        connection.execute(f"SET {setting}")
    return connection


def table(rows: Iterable[tuple[Any, ...]]) -> Table:
    """The rows, read one by one until they are too many or too long."""
    found: list[tuple[Any, ...]] = []
    size = 0
    for row in rows:
        size += sum(map(sys.getsizeof, row))
        if len(found) == MOST_ROWS or size > MOST_BYTES:
            return Table(error=f"more than {MOST_ROWS} rows or {MOST_BYTES} bytes")
        found.append(tuple(map(cell, row)))
    return Table(rows=tuple(found))


def cell(x: Any) -> Any:
    """A value as it is compared: 1 = 1.0, rounding errors do not count, text is not a number."""
    if isinstance(x, float):
        return round(x, 6) if math.isfinite(x) else repr(x)
    return x if isinstance(x, int | str | bytes | None.__class__) else str(x)


def same_rows(a: Rows, b: Rows, *, ordered: bool = False, columns_ordered: bool = True) -> bool:
    """Equality as multisets of rows, or as lists; without the order of columns, each row's values are sorted."""
    if not columns_ordered:
        a, b = (tuple(tuple(sorted(r, key=lambda v: (str(type(v)), str(v)))) for r in rows) for rows in (a, b))
    return a == b if ordered else Counter(a) == Counter(b)


def qatch(gold: Rows, said: Rows, *, bag: bool) -> float:
    """Mean of cell precision, cell recall and the ratio of row counts, each to three decimals (QATCH).

    Cells are compared as sets, as released (duplicates are free), or as bags.
    """
    if not gold or not said:
        return float(not gold and not said)
    cells = [Counter(c for row in rows for c in row) for rows in (gold, said)]
    if not bag:
        cells = [Counter(set(c)) for c in cells]
    shared, n_gold, n_said = (c.total() for c in (cells[0] & cells[1], *cells))
    ratio = min(len(gold), len(said)) / max(len(gold), len(said))
    return sum(round(x, 3) for x in (shared / n_said if n_said else 0.0, shared / n_gold if n_gold else 0.0, ratio)) / 3


def is_ordered(query: str) -> bool:
    """Whether a query's own rows are ordered: ORDER BY outside brackets."""
    text, depth = "", 0
    for c in re.sub(r"'(?:[^']|'')*'", "''", query):
        depth += (c == "(") - (c == ")")
        text += c if depth == 0 else " "
    return bool(re.search(r"\border\s+by\b", text, re.IGNORECASE))
