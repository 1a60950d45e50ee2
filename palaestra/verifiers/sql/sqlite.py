"""Result tables of sqlite: read-only, one statement, with limits of time, rows and bytes."""

from __future__ import annotations

import contextlib
import sqlite3
import time
from collections.abc import Callable, Generator, Sequence
from typing import Any

from palaestra.errors import UserError
from palaestra.verifiers.sql.copies import TableShape, make_copies
from palaestra.verifiers.sql.instances import (
    bundle_columns,
    deletion,
    move_query,
    quote,
    sample,
)
from palaestra.verifiers.sql.tables import Database, Kept, ResultTable, change_time, file_of, table

ALLOWED_ACTIONS = {
    sqlite3.SQLITE_SELECT,
    sqlite3.SQLITE_READ,
    sqlite3.SQLITE_FUNCTION,
    sqlite3.SQLITE_RECURSIVE,
}
LIMITS = {
    sqlite3.SQLITE_LIMIT_LENGTH: 500_000,  # bytes of a value, and of a row of a table
    sqlite3.SQLITE_LIMIT_COLUMN: 500,  # of a table, and of a result: a row of them is read whole
    sqlite3.SQLITE_LIMIT_EXPR_DEPTH: 200,
    sqlite3.SQLITE_LIMIT_LIKE_PATTERN_LENGTH: 200,
    sqlite3.SQLITE_LIMIT_ATTACHED: 0,
}
OPCODES = 1000  # between two looks at the clock
# Without the tables of an extension, whose parts must fit each other.
TABLES = """
SELECT name FROM sqlite_master m WHERE type = 'table' AND name NOT LIKE 'sqlite\\_%' ESCAPE '\\' AND NOT EXISTS (
  SELECT 1 FROM sqlite_master v
  WHERE v.sql LIKE 'CREATE VIRTUAL%' AND (m.name = v.name OR m.name LIKE v.name || '\\_%' ESCAPE '\\'))
"""
connections: Kept[sqlite3.Connection] = Kept(lambda connection: connection.close())


def sqlite_rows(query: str, database: Database, seconds: float) -> ResultTable:
    connection = connections.get((database, change_time(database)), lambda: _open(database))
    end = time.monotonic() + seconds
    connection.set_progress_handler(lambda: time.monotonic() > end, OPCODES)
    try:
        with contextlib.closing(connection.execute(query)) as rows:
            return table(rows)
    except (
        sqlite3.Error,
        sqlite3.Warning,
        ValueError,
        OverflowError,
        MemoryError,
        UnicodeError,
    ) as error:
        return ResultTable(
            error="timeout" if "interrupted" in str(error) else str(error) or "no statement"
        )


def authorise(action: int, first: Any, second: Any, *_: Any) -> int:
    denied = action not in ALLOWED_ACTIONS or (
        action == sqlite3.SQLITE_FUNCTION and second == "load_extension"
    )
    return sqlite3.SQLITE_DENY if denied else sqlite3.SQLITE_OK


def _open(database: Database) -> tuple[sqlite3.Connection, int]:
    """A connection that can only read, to the file or to an instance in memory, and the bytes of
    the latter.
    """
    try:
        connection = _file(database) if database.path and database.whole else _instance(database)
        pages, each = (
            connection.execute(f"PRAGMA {name}").fetchone()[0]
            for name in ("page_count", "page_size")
        )
    except sqlite3.Error as error:
        raise UserError(
            f"the database {database.path or 'of the schema'} cannot be opened: {error}"
        ) from None
    connection.text_factory = _text
    connection.execute(f"PRAGMA reverse_unordered_selects = {int(database.reverse)}")
    for limit, most in LIMITS.items():
        connection.setlimit(limit, most)
    connection.set_authorizer(authorise)
    return connection, 0 if database.path and database.whole else pages * each


def _text(raw: bytes) -> str:
    return raw.decode("utf-8", "replace")


def _file(database: Database) -> sqlite3.Connection:
    uri = f"{file_of(database).as_uri()}?mode=ro"
    return sqlite3.connect(uri, uri=True, isolation_level=None, cached_statements=0)


def _instance(database: Database) -> sqlite3.Connection:
    connection = sqlite3.connect(":memory:", isolation_level=None, cached_statements=0)
    connection.executescript(database.schema)
    if connection.in_transaction:
        connection.commit()
    connection.execute("PRAGMA user_version = 0")  # gives an empty database its first page
    if database.path:
        with contextlib.closing(_file(database)) as file:
            file.backup(connection)
    connection.execute("PRAGMA foreign_keys = OFF")
    connection.text_factory = bytes  # so that what is no UTF-8 is moved as it is
    if database.whole:
        return connection
    names = [_text(name) for (name,) in connection.execute(TABLES).fetchall()]
    _change(connection, names, database)
    return connection


def _change(connection: sqlite3.Connection, names: Sequence[str], database: Database) -> None:
    """Halves the tables, moves their values, adds rows, or turns them round; one that a constraint
    or a trigger keeps from it stays as it is. All tables take one step before the next one, so that
    tables that are turned round have the rows of those that are not.
    """

    def each(step: Callable[[str], None]) -> None:
        for name in names:
            connection.execute("BEGIN")
            try:
                step(name)
                connection.execute("COMMIT")
            except sqlite3.Error:
                connection.execute("ROLLBACK")

    restores = bool(database.half or database.added)
    before = _broken_references(connection) if restores else []
    if database.half:
        each(lambda name: _halve(connection, name, database.half))
    if database.seed:
        each(lambda name: _move(connection, name, database.seed))
    if database.added or database.beside:
        each(lambda name: _add(connection, name, database))
    if restores:
        _restore_references(connection, {(name, key) for name, _, key in before})
    if database.backward:
        each(lambda name: _turn(connection, name))


def _halve(connection: sqlite3.Connection, name: str, half: str) -> None:
    connection.execute(deletion(quote(name), half == "even"))


def _move(connection: sqlite3.Connection, name: str, seed: int) -> None:
    t = quote(name)
    (n,) = connection.execute(f"SELECT count(*) FROM {t}").fetchone()
    if n < 2 or _has_triggers(connection, name):
        return
    with _decoded(connection):
        shape = _shape(connection, t)
    _rewrite(connection, t, shape.columns, move_query(t, shape.columns, shape.bundles, n, seed))


def _has_triggers(connection: sqlite3.Connection, name: str) -> bool:
    triggers = "SELECT 1 FROM sqlite_master WHERE type = 'trigger' AND tbl_name = ?"
    return connection.execute(triggers, (name,)).fetchone() is not None


@contextlib.contextmanager
def _decoded(connection: sqlite3.Connection) -> Generator[None]:
    """Text as text, where an instance is made with text as bytes."""
    connection.text_factory = _text
    try:
        yield
    finally:
        connection.text_factory = bytes


def _shape(connection: sqlite3.Connection, t: str) -> TableShape:
    """The columns of a table that are no generated ones, and what new rows must keep to. Text that
    is no UTF-8 is replaced in its sample of rows.
    """
    info = [(c[1], c[3], c[5], c[6]) for c in connection.execute(f"PRAGMA table_xinfo({t})")]
    columns = [c for c, _, _, hidden in info if not hidden]
    keys = [c for c, _, key, hidden in info if key and not hidden]
    free = [c for c in columns if c not in keys]
    references: dict[int, list[tuple[str, str, str | None]]] = {}
    for key, _, *reference in connection.execute(f"PRAGMA foreign_key_list({t})").fetchall():
        parent, column, to = reference[:3]
        references.setdefault(key, []).append((column, parent, to))
    joint = [[column for column, *_ in group] for group in references.values()]
    rows = connection.execute(sample(t, columns)).fetchall()
    values = [tuple(row[columns.index(c)] for c in free) for row in rows]
    groups = [tuple(sorted(keys)), *_unique_groups(connection, t)]
    alone = [group[0] for group in references.values() if len(group) == 1]
    targets = {c: _values(connection, parent, to) for c, parent, to in alone}
    return TableShape(
        columns=tuple(columns),
        rows=tuple(rows),
        required=frozenset(c for c, required, *_ in info if required) | set(keys),
        unique=tuple(dict.fromkeys(group for group in groups if group)),
        refers=frozenset(c for group in joint for c in group),
        targets=targets,
        bundles=tuple(map(tuple, bundle_columns(free, joint, values) if free else [])),
    )


def _values(connection: sqlite3.Connection, parent: str, column: str | None) -> tuple[Any, ...]:
    """What a foreign key may refer to; without a column its parent's primary key. A parent that is
    not there has none.
    """
    info = connection.execute(f"PRAGMA table_info({quote(parent)})").fetchall()
    columns = [column] if column else [name for _, name, *_, key in info if key]
    with contextlib.suppress(sqlite3.Error):
        return tuple(row[0] for row in connection.execute(sample(quote(parent), columns)))
    return ()


def _unique_groups(connection: sqlite3.Connection, t: str) -> list[tuple[str, ...]]:
    """The columns of each unique index of a table; an index of an expression or of a part of the
    rows has none.
    """
    groups: list[tuple[str, ...]] = []
    for _, name, unique, _, partial in connection.execute(f"PRAGMA index_list({t})").fetchall():
        index = connection.execute(f"PRAGMA index_info({quote(name)})").fetchall()
        if unique and not partial and all(column is not None for *_, column in index):
            groups.append(tuple(sorted(column for *_, column in index)))
    return groups


def _add(connection: sqlite3.Connection, name: str, database: Database) -> None:
    """Adds copies of rows; one that a constraint refuses is left out."""
    t = quote(name)
    if _has_triggers(connection, name):
        return
    with _decoded(connection):
        shape = _shape(connection, t)
    columns = f"({', '.join(map(quote, shape.columns))})"
    marks = ", ".join("?" * len(shape.columns))
    connection.executemany(
        f"INSERT OR IGNORE INTO main.{t} {columns} VALUES ({marks})",
        make_copies(shape, database.added, database.beside),
    )


def _broken_references(connection: sqlite3.Connection) -> list[tuple[str, Any, int]]:
    """Rows that refer to none: table, row number (None without row numbers), and the number of the
    foreign key. A foreign key that fits no table breaks none.
    """
    try:
        rows = connection.execute("PRAGMA foreign_key_check").fetchall()
    except sqlite3.Error:
        return []
    return [(_text(name), rowid, key) for name, rowid, _, key in rows]


def _restore_references(connection: sqlite3.Connection, unchecked: set[tuple[str, int]]) -> None:
    """Takes the references to rows that are gone away: by NULL where the columns take it, else with
    the row, to which others may refer in turn. `unchecked`: tables and foreign keys that are left
    as they are.
    """
    done: set[tuple[str, Any, int]] = set()
    while True:
        broken: dict[tuple[str, int], list[Any]] = {}
        for name, rowid, key in _broken_references(connection):
            known = (name, key) in unchecked or (name, rowid, key) in done or rowid is None
            if not known:
                broken.setdefault((name, key), []).append(rowid)
        if not broken:
            return
        for (name, key), rows in broken.items():
            done.update((name, rowid, key) for rowid in rows)
            with contextlib.suppress(sqlite3.Error):
                change = _release(connection, name, key)
                connection.executemany(f"{change} WHERE rowid = ?", [(rowid,) for rowid in rows])


def _release(connection: sqlite3.Connection, name: str, key: int) -> str:
    """How rows of a table lose a reference: the start of an UPDATE or of a DELETE."""
    t = quote(name)
    parts = connection.execute(f"PRAGMA foreign_key_list({t})").fetchall()
    columns = {part[3] for part in parts if part[0] == key}
    info = connection.execute(f"PRAGMA table_xinfo({t})").fetchall()
    if any(c[3] or c[5] for c in info if c[1] in columns):
        return f"DELETE FROM main.{t}"
    unset = ", ".join(f"{quote(_text(c))} = NULL" for c in sorted(columns))
    return f"UPDATE main.{t} SET {unset}"


def _rewrite(connection: sqlite3.Connection, t: str, columns: Sequence[str], query: str) -> None:
    """The rows of a query in the place of a table's own."""
    names = ", ".join(map(quote, columns))
    connection.execute(f"CREATE TEMP TABLE palaestra AS {query}")
    connection.execute(f"DELETE FROM main.{t}")
    connection.execute(
        f"INSERT INTO main.{t} ({names}) SELECT {names} FROM temp.palaestra ORDER BY rowid"
    )
    connection.execute("DROP TABLE temp.palaestra")


def _turn(connection: sqlite3.Connection, name: str) -> None:
    t = quote(name)
    connection.execute("PRAGMA legacy_alter_table = ON")  # or a view of the table stands in the way
    connection.execute(f"CREATE TABLE palaestra AS SELECT * FROM {t} ORDER BY rowid DESC")
    connection.execute(f"DROP TABLE {t}")
    connection.execute(f"ALTER TABLE palaestra RENAME TO {t}")
