"""Result tables of sqlite: read-only, one statement, with limits of time, rows and bytes."""

from __future__ import annotations

import contextlib
import sqlite3
import time
from typing import Any

from palaestra.errors import UserError
from palaestra.verifiers.sql.instances import (
    bundle_columns,
    deletion,
    move_query,
    quote,
    sample,
    values_beside,
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
    for (name,) in connection.execute(TABLES).fetchall() if not database.whole else ():
        _change(connection, _text(name), database)
    return connection


def _change(connection: sqlite3.Connection, name: str, database: Database) -> None:
    """Halves a table, moves its values, or turns it round; one that a constraint or a trigger keeps
    from it stays as it is.
    """
    steps = [lambda: _halve(connection, name, database.half)] * bool(database.half)
    steps += [lambda: _move(connection, name, database.seed)] * bool(database.seed)
    steps += [lambda: _add_beside(connection, name, database.beside)] * bool(database.beside)
    steps += [lambda: _turn(connection, name)] * database.backward
    for step in steps:
        connection.execute("BEGIN")
        try:
            step()
            connection.execute("COMMIT")
        except sqlite3.Error:
            connection.execute("ROLLBACK")


def _halve(connection: sqlite3.Connection, name: str, half: str) -> None:
    connection.execute(deletion(quote(name), half == "even"))


def _move(connection: sqlite3.Connection, name: str, seed: int) -> None:
    t = quote(name)
    (n,) = connection.execute(f"SELECT count(*) FROM {t}").fetchone()
    if n < 2 or _has_triggers(connection, name):
        return
    columns, free, _, bundles = _columns(connection, t)
    _rewrite(connection, t, columns, move_query(t, columns, bundles if free else [], n, seed))


def _has_triggers(connection: sqlite3.Connection, name: str) -> bool:
    triggers = "SELECT 1 FROM sqlite_master WHERE type = 'trigger' AND tbl_name = ?"
    return connection.execute(triggers, (name,)).fetchone() is not None


def _columns(
    connection: sqlite3.Connection, t: str
) -> tuple[list[str], list[str], set[str], list[list[str]]]:
    """The columns of a table that are no generated ones, those of them that are no keys, those that
    refer to other tables, and which of the second move together.
    """
    info = [(_text(c[1]), c[5], c[6]) for c in connection.execute(f"PRAGMA table_xinfo({t})")]
    columns = [c for c, _, hidden in info if not hidden]  # generated ones follow
    free = [c for c, key, hidden in info if not key and not hidden]
    references: dict[int, list[str]] = {}
    for reference in connection.execute(f"PRAGMA foreign_key_list({t})"):
        references.setdefault(reference[0], []).append(_text(reference[3]))
    rows = connection.execute(sample(t, free)).fetchall() if free else []
    bundles = bundle_columns(free, references.values(), rows) if free else []
    return columns, free, {c for group in references.values() for c in group}, bundles


def _add_beside(connection: sqlite3.Connection, name: str, literals: tuple[int | str, ...]) -> None:
    """Adds copies of rows in which one column has a value at or beside a literal. What no other
    column tells, and what refers to nothing, is changed; what differs in all rows still does.
    """
    t = quote(name)
    (n,) = connection.execute(f"SELECT count(*) FROM {t}").fetchone()
    columns, free, refers, bundles = _columns(connection, t)
    keys = [c for c in columns if c not in free]
    if not n or len(keys) > 1 or _has_triggers(connection, name):
        return
    shown = [c for c in columns if c not in keys]
    rows = [
        [_text(x) if isinstance(x, bytes) else x for x in row]
        for row in connection.execute(f"{sample(t, shown)}").fetchall()
    ]
    several = {c for bundle in bundles if len(bundle) > 1 for c in bundle}
    values = [[row[i] for row in rows] for i in range(len(shown))]
    unlike = [len(set(map(repr, column))) == len(column) for column in values]
    marks = f"({', '.join(map(quote, shown))}) VALUES ({', '.join('?' * len(shown))})"
    added = 0
    for i, column in enumerate(shown):
        near = [] if column in several or column in refers else values_beside(literals, values[i])
        for value in near:
            added += 1
            row = list(rows[added % len(rows)])
            for k, x in enumerate(row):
                if isinstance(x, str) and unlike[k] and shown[k] not in refers:
                    row[k] = f"{x} {added}"
            row[i] = value
            connection.execute(f"INSERT OR IGNORE INTO main.{t} {marks}", row)


def _rewrite(connection: sqlite3.Connection, t: str, columns: list[str], query: str) -> None:
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
