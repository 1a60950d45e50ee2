"""Result tables of duckdb: read-only, one statement, no files, with limits of time, rows and bytes.

An instance of duckdb takes 50 ms and 80 MB of address space, a database attached to one 10 ms and 1
MB: all scripts share one instance, each file has one. An instance is locked before a query of a
model is run in it.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Sequence
from functools import lru_cache
from typing import Any

from palaestra.errors import UserError
from palaestra.verifiers.sql.copies import TableShape, make_copies
from palaestra.verifiers.sql.instances import (
    SAMPLE_ROWS,
    bundle_columns,
    deletion,
    move_query,
    quote,
    sample,
)
from palaestra.verifiers.sql.tables import Database, Kept, ResultTable, change_time, file_of, table

MEMORY = "1500MB"  # of an instance: what is kept open and a query
HOSTS = 12  # instances
MOST_ATTACHED = 320  # databases of an instance
LOOK = 0.1  # seconds between two looks at the clock
SINGLE = {"FLOAT", "REAL"}
# how a pivot starts, which is several statements to duckdb
READS = ("pivot", "unpivot", "from", "with", "select", "(")


class Host:
    """An instance with the databases attached to it. `source` is the one that others are copied
    from, if there is one.
    """

    def __init__(self, connection: Any, source: str = "") -> None:
        self.connection, self.source, self.n = connection, source, 0
        self.cursors: Kept[tuple[str, Any]] = Kept(self._detach, MOST_ATTACHED)
        for setting in ("enable_external_access = false", "lock_configuration = true"):
            connection.execute(f"SET {setting}")

    def cursor(self, database: Database) -> Any:
        return self.cursors.get(database, lambda: self._attached(database))[1]

    def _attached(self, database: Database) -> tuple[tuple[str, Any], int]:
        """A cursor in a database of its own. Names count on, so that none tells which instance it
        is.
        """
        cursor, before = self.connection.cursor(), self._memory()
        self.n += 1
        name = f"d{self.n}"
        if self.source and database.whole:
            cursor.execute(f"USE {quote(self.source)}")
            return ("", cursor), 0
        cursor.execute(f"ATTACH ':memory:' AS {name}; USE {name}")
        try:
            if self.source:
                cursor.execute(f"COPY FROM DATABASE {quote(self.source)} TO {name}")
            elif database.schema:
                cursor.execute(database.schema)
            _change(cursor, database)
        except Exception:
            self._detach((name, cursor))
            raise
        return (name, cursor), max(0, self._memory() - before)

    def _memory(self) -> int:
        return int(
            self.connection.execute(
                "SELECT sum(memory_usage_bytes) FROM duckdb_memory()"
            ).fetchone()[0]
        )

    def _detach(self, kept: tuple[str, Any]) -> None:
        name, cursor = kept
        cursor.close()
        if name:
            self.connection.execute(f"DETACH {name}")

    def close(self) -> None:
        for _, cursor in (kept for kept, _ in self.cursors.things.values()):
            cursor.close()
        self.connection.close()


hosts: Kept[Host] = Kept(Host.close, HOSTS)
running: list[tuple[float, Any]] = []  # the query that runs: its end, and its cursor


@lru_cache(maxsize=1)
def _watch() -> None:
    """Starts the thread that stops a query at its limit: one for all, as a timer for each would
    take as long as a query.
    """
    threading.Thread(target=_interrupts, daemon=True).start()


def _interrupts() -> None:
    while True:
        time.sleep(LOOK)
        for end, connection in list(running):
            if time.monotonic() > end:
                connection.interrupt()


def duckdb_rows(query: str, database: Database, seconds: float) -> ResultTable:
    import duckdb  # pyright: ignore[reportMissingImports]

    connection = _cursor(database)
    _watch()
    running[:] = [(time.monotonic() + seconds, connection)]
    try:
        statements = connection.extract_statements(query)
        if len(statements) != 1 or not _reads(statements[0], query):
            return ResultTable(error="not one SELECT statement")
        # or a sequence would count on for the next query
        connection.execute("BEGIN TRANSACTION READ ONLY")
        result = connection.execute(statements[0])
        single = frozenset(
            i for i, column in enumerate(result.description) if str(column[1]) in SINGLE
        )
        return table(iter(result.fetchone, None), single)
    except (duckdb.Error, RuntimeError, ValueError, ImportError) as error:
        if isinstance(error, duckdb.FatalException | duckdb.InternalException):
            hosts.clear()  # an instance that broke refuses every later query
        return ResultTable(
            error="timeout" if "nterrupt" in str(error) else str(error)[:200] or "no statement"
        )
    finally:
        running.clear()
        with contextlib.suppress(duckdb.Error):
            connection.execute("ROLLBACK")


def _reads(statement: Any, query: str) -> bool:
    """Whether a statement is a SELECT, or a pivot, for which duckdb makes a type that the end of
    the transaction takes back.
    """
    from duckdb import StatementType  # pyright: ignore[reportMissingImports]

    pivot = statement.type == StatementType.MULTI and query.lstrip().lower().startswith(READS)
    return statement.type == StatementType.SELECT or pivot


def _cursor(database: Database) -> Any:
    """A cursor in the database, in the instance that all scripts share, or in one of its own."""
    import duckdb  # pyright: ignore[reportMissingImports]

    own = (database.schema, database.path, change_time(database))
    if not database.path and own not in hosts.things:
        try:
            return hosts.get("scripts", lambda: (Host(_connect()), 0)).cursor(database)
        except duckdb.Error:  # the script reads files or changes settings, or it is broken
            pass
    try:
        return hosts.get(own, lambda: (_own(database), 0)).cursor(database)
    except duckdb.Error as error:
        where = (
            f"the database {database.path} cannot be opened"
            if database.path
            else "the schema does not run"
        )
        raise UserError(f"{where}: {' '.join(str(error).split())[:200]}") from None


def _connect() -> Any:
    import duckdb  # pyright: ignore[reportMissingImports]

    return duckdb.connect(
        ":memory:", config={"threads": 1, "temp_directory": "", "memory_limit": MEMORY}
    )


def _own(database: Database) -> Host:
    """An instance for a file, or for a script that an instance which is locked refuses."""
    connection = _connect()
    if not database.path:
        connection.execute("ATTACH ':memory:' AS script; USE script")
        connection.execute(database.schema)
        return Host(connection, "script")
    file = file_of(database)
    name = "file" if file.stem in ("memory", "system", "temp") else file.stem
    connection.execute(f"""ATTACH '{str(file).replace("'", "''")}' AS {quote(name)} (READ_ONLY)""")
    return Host(connection, name)


def _change(cursor: Any, database: Database) -> None:
    """Halves the tables, adds rows, moves their values, or turns them round; one that a constraint
    keeps from it stays as it is.
    """
    import duckdb  # pyright: ignore[reportMissingImports]

    if database.whole:
        return
    tables = (
        "SELECT schema_name, table_name, upper(sql) FROM duckdb_tables() WHERE database_name = "
        "current_database()"
    )
    left = [
        (f"{quote(schema)}.{quote(name)}", sql)
        for schema, name, sql in cursor.execute(tables).fetchall()
    ]
    for t, _ in left if database.half else ():
        with contextlib.suppress(duckdb.Error):
            cursor.execute(deletion(t, database.half == "odd"))  # rows are counted from 0
    tables = [t for t, sql in left if "GENERATED ALWAYS" not in sql]
    for t in tables if database.added or database.beside else ():
        _add(cursor, t, database)
    if database.seed or database.backward:
        _replace(cursor, tables, database)


def _replace(cursor: Any, tables: Sequence[str], database: Database) -> None:
    """Moves the values of tables, or turns them round."""
    import duckdb  # pyright: ignore[reportMissingImports]

    queries = {
        t: _move(cursor, t, database.seed) if database.seed else f"SELECT * FROM {t} ORDER BY rowid"
        for t in tables
    }
    waiting = 0
    # a table can be replaced after those that refer to it
    while queries and len(queries) != waiting:
        waiting = len(queries)
        for t, query in list(queries.items()):
            with contextlib.suppress(duckdb.Error):
                cursor.execute(
                    f"CREATE OR REPLACE TABLE {t} AS {query}{' DESC' * database.backward}"
                )
                del queries[t]


def _move(cursor: Any, t: str, seed: int) -> str:
    shape = _shape(cursor, t)
    (n,) = cursor.execute(f"SELECT count(*) FROM {t}").fetchone()
    if n < 2 or not shape.bundles:
        return f"SELECT * FROM {t} ORDER BY rowid"
    return move_query(t, shape.columns, shape.bundles, n, seed)


def _shape(cursor: Any, t: str) -> TableShape:
    """The columns of a table, and what new rows must keep to."""
    columns = [name for name, *_ in cursor.execute(f"DESCRIBE {t}").fetchall()]
    mine = (
        "database_name = current_database() AND concat('\"', replace(schema_name, '\"', '\"\"'), "
        "'\".\"', replace(table_name, '\"', '\"\"'), '\"') = ?"
    )
    constraint_rows = cursor.execute(
        "SELECT constraint_type, constraint_column_names, constraint_text FROM duckdb_constraints() "
        f"WHERE {mine}",
        [t],
    )
    constraints: dict[str, list[list[str]]] = {}
    targets: dict[str, tuple[Any, ...]] = {}
    for kind, names, text in constraint_rows.fetchall():
        constraints.setdefault(kind, []).append(names)
        if kind == "FOREIGN KEY" and len(names) == 1:
            targets[names[0]] = _values(cursor, text)
    primary = constraints.get("PRIMARY KEY", [])
    keys = {name for names in primary for name in names}
    free = [name for name in columns if name not in keys]
    joint = constraints.get("FOREIGN KEY", [])
    rows = cursor.execute(sample(t, columns)).fetchall()
    values = [tuple(row[columns.index(c)] for c in free) for row in rows]
    return TableShape(
        columns=tuple(columns),
        rows=tuple(rows),
        required=frozenset(c for names in constraints.get("NOT NULL", []) for c in names) | keys,
        unique=tuple(map(tuple, [*primary, *constraints.get("UNIQUE", [])])),
        refers=frozenset(c for names in joint for c in names),
        targets=targets,
        bundles=tuple(map(tuple, bundle_columns(free, joint, values) if free else [])),
    )


def _values(cursor: Any, constraint: str) -> tuple[Any, ...]:
    """What a foreign key of one column may refer to, read off its text."""
    import duckdb  # pyright: ignore[reportMissingImports]

    parent, _, columns = constraint.rpartition(" REFERENCES ")[2].rpartition("(")
    with contextlib.suppress(duckdb.Error):
        query = f"SELECT {columns.strip(') ')} FROM {parent} LIMIT {SAMPLE_ROWS}"
        return tuple(x for (x,) in cursor.execute(query).fetchall())
    return ()


def _add(cursor: Any, t: str, database: Database) -> None:
    """Adds copies of rows; one that a constraint refuses is left out."""
    import duckdb  # pyright: ignore[reportMissingImports]

    shape = _shape(cursor, t)
    rows = make_copies(shape, database.added, database.beside)
    columns = ", ".join(map(quote, shape.columns))
    marks = f"({', '.join('?' * len(shape.columns))})"

    def insert(some: Sequence[tuple[Any, ...]]) -> None:
        values = [x for row in some for x in row]
        marked = ", ".join([marks] * len(some))
        try:
            cursor.execute(f"INSERT INTO {t} ({columns}) VALUES {marked}", values)
        except duckdb.Error:
            for row in some if len(some) > 1 else ():
                insert([row])

    if rows:
        insert(rows)
