"""The child process of the SQL verifiers: keeps databases open, and compares what queries give
there.
"""

from __future__ import annotations

import signal
import sys
from dataclasses import replace
from typing import Any

from palaestra.errors import UserError
from palaestra.verifiers.sql.duck import duckdb_rows
from palaestra.verifiers.sql.instances import literals_of
from palaestra.verifiers.sql.sqlite import sqlite_rows
from palaestra.verifiers.sql.tables import (
    Database,
    Kept,
    ResultTable,
    Rows,
    change_time,
    qatch,
    same_rows,
)
from palaestra.verifiers.worker import serve

GRACE = 0.2  # seconds beyond the limit for an engine to stop by itself, which saves a fresh child
GOLD = 10  # times the limit: what a reference may take
MEMORY = 6 * 2**30  # bytes of address space
golds: Kept[ResultTable] = Kept(lambda _: None, 4096, 200_000_000)


def run(query: str, database: Database, seconds: float) -> ResultTable:
    """The result of a query. It can only read. An engine that does not stop is ended, with the
    process, by an alarm.
    """
    return (duckdb_rows if database.engine == "duckdb" else sqlite_rows)(query, database, seconds)


def gold_rows(query: str, database: Database, seconds: float) -> ResultTable:
    """The result of the reference query, which must run."""

    def made() -> tuple[ResultTable, int]:
        found = run(query, database, GOLD * seconds)
        if found.error:
            raise UserError(
                f"the reference query {query[:80]!r} fails: {found.error}; mend it, or its database"
            )
        return found, found.size + sys.getsizeof(query)

    return golds.get((query, database, change_time(database)), made)


def said_rows(query: str, database: Database, seconds: float) -> ResultTable:
    signal.setitimer(signal.ITIMER_REAL, seconds + GRACE)
    try:
        return run(query, database, seconds)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)


def compare_results(request: dict[str, Any]) -> dict[str, Any]:
    try:
        return {"result": _compare_results(request)}
    except UserError as error:
        return {"user": str(error)}


def _compare_results(request: dict[str, Any]) -> dict[str, Any]:
    """On how many databases the query agrees, of how many; whether the reference has rows; the
    likeness of the tables.

    Instances with moved values are asked if all others agree. Those on which the reference itself
    gives other rows when they are stored in another order do not count.
    """
    databases = [
        Database(engine=request["engine"], path=request["path"], schema=s)
        for s in request["schemas"]
    ]
    given = [replace(d, half=half) for d in databases for half in request["halves"]]
    gold, said, seconds = request["gold"], request["said"], request["seconds"]

    def same(a: Rows, b: Rows) -> bool:
        return same_rows(
            a, b, ordered=request["ordered"], columns_ordered=request["columns_ordered"]
        )

    def pair(database: Database) -> tuple[ResultTable, ResultTable]:
        return gold_rows(gold, database, seconds), said_rows(said, database, seconds)

    pairs: list[tuple[ResultTable, ResultTable]] = []
    for database in given:
        pairs.append(pair(database))
        if error := pairs[-1][1].error:
            return {"error": error}
    agree = [same(a.rows, b.rows) for a, b in pairs]
    rows = any(a.rows for a, _ in pairs)
    likeness = [
        qatch(a.rows, b.rows, bag=request["likeness"] == "bags")
        for a, b in pairs
        if request["likeness"]
    ]
    others = [replace(d, seed=k) for d in databases for k in request["seeds"]]
    beside = literals_of(gold) if request["seeds"] and request["engine"] == "sqlite" else ()
    others += [replace(d, beside=beside) for d in databases if beside]
    for database in others if all(agree) else ():
        a, b = pair(database)
        rows |= bool(a.rows)
        right = not b.error and same(a.rows, b.rows)
        if right or same(a.rows, gold_rows(gold, replace(database, backward=True), seconds).rows):
            agree.append(right)
        if not right:
            break
    return {"agree": sum(agree), "of": len(agree), "rows": rows, "likeness": likeness}


def report_ready() -> dict[str, Any]:
    return {"result": True}


if __name__ == "__main__":
    serve({"compared": compare_results}, report_ready, MEMORY)
