"""The database of an episode, as a value: JSON, or SQLite. A tool gets a copy of its own, and what it
leaves is the next value, so an episode can be forked.
"""

from __future__ import annotations

import hashlib
import json
import sqlite3
from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any, TypeAlias

from palaestra.errors import UserError

DatabaseValue: TypeAlias = str | bytes  # JSON text; a whole SQLite file
SQLITE_MAGIC = b"SQLite format 3\x00"
EXAMPLE = '{"stock": {"lion": 3}}'


@lru_cache(maxsize=16)
def read_database(file: str) -> DatabaseValue:
    """The database in a file. Raises UserError where it is neither JSON nor SQLite."""
    path = Path(file).expanduser()
    try:
        content = path.read_bytes()
    except OSError as error:
        raise UserError(f"{file}: the database cannot be read: {error.strerror}") from None
    if content.startswith(SQLITE_MAGIC):
        return content
    try:
        return as_database(json.loads(content), file)
    except ValueError as error:
        raise UserError(
            f"{file} is no SQLite file and no JSON ({error}); write for instance {EXAMPLE}"
        ) from None


def as_database(value: Any, where: str) -> str:
    """A JSON database as a value. Raises UserError for what is no JSON object or list."""
    if not isinstance(value, dict | list):
        raise UserError(f"{where}: a database is a JSON object, such as {EXAMPLE}")
    try:
        return json.dumps(value, allow_nan=False)
    except (TypeError, ValueError, RecursionError) as error:
        raise UserError(f"{where}: the database is no JSON: {error}") from None


def open_database(value: DatabaseValue) -> Any:
    """A copy for a tool: the JSON value, or a connection to an SQLite database in memory."""
    if isinstance(value, str):
        return json.loads(value)
    connection = sqlite3.connect(":memory:", check_same_thread=False)
    connection.deserialize(value)
    return connection


def close_database(database: Any, where: str) -> DatabaseValue:
    """What a tool left of its copy. Raises UserError where it is no JSON any more; `where` names the
    tool.
    """
    if not isinstance(database, sqlite3.Connection):
        return as_database(database, where)
    database.commit()
    content = database.serialize()
    database.close()
    return content


def database_digest(value: DatabaseValue) -> str:
    """sha256 of what a database holds: of JSON with its keys in order, of SQLite of all tables with
    their rows in order, so that neither the order of keys nor that of rows counts.
    """
    held = json.loads(value) if isinstance(value, str) else rows_by_table(value)
    text = json.dumps(held, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()


def rows_by_table(value: bytes) -> Mapping[str, list[str]]:
    """The sorted rows of each table of an SQLite file, behind what makes the table."""
    connection = open_database(value)
    query = "SELECT name, sql FROM sqlite_master WHERE type = 'table' AND name NOT LIKE 'sqlite_%'"
    tables = connection.execute(query).fetchall()
    held = {
        f"{name}: {sql}": sorted(map(repr, connection.execute(f'SELECT * FROM "{name}"')))
        for name, sql in tables
    }
    connection.close()
    return held
