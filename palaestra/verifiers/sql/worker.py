"""The child process of the SQL verifiers: keeps databases open, and compares what queries give
there.
"""

from __future__ import annotations

import re
import signal
import sys
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from palaestra.errors import UserError
from palaestra.verifiers.sql.duck import duckdb_rows
from palaestra.verifiers.sql.instances import literals_of
from palaestra.verifiers.sql.orders import break_ties, same_up_to_ties
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
ROW_NUMBER = re.compile(r"\browid\b", re.IGNORECASE)  # which differs where rows are turned round
MEMORY = 6 * 2**30  # bytes of address space
golds: Kept[ResultTable] = Kept(lambda _: None, 4096, 200_000_000)


def run(query: str, database: Database, seconds: float) -> ResultTable:
    """The result of a query. It can only read. An engine that does not stop is ended, with the
    process, by an alarm.
    """
    return (duckdb_rows if database.engine == "duckdb" else sqlite_rows)(query, database, seconds)


def gold_rows(query: str, database: Database, seconds: float) -> ResultTable:
    """The result of the reference query, which must run on the databases as they are given."""
    rows = reference_rows(query, database, seconds)
    if rows.error:
        raise UserError(
            f"the reference query {query[:80]!r} fails: {rows.error}; mend it, or its database"
        )
    return rows


def reference_rows(query: str, database: Database, seconds: float) -> ResultTable:
    """The result of the reference query, or of a form of it, which may fail."""

    def made() -> tuple[ResultTable, int]:
        rows = run(query, database, GOLD * seconds)
        return rows, rows.size + sys.getsizeof(query)

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

    The instances with other values are asked if the databases and their halves agree, until one
    does not.
    """
    databases = [
        Database(engine=request["engine"], path=request["path"], schema=s)
        for s in request["schemas"]
    ]
    stated, seconds = request["said"], request["seconds"]
    pairs: list[tuple[Database, ResultTable, ResultTable]] = []
    for database in (replace(d, half=half) for d in databases for half in request["halves"]):
        gold = gold_rows(request["gold"], database, seconds)
        pairs.append((database, gold, said_rows(stated, database, seconds)))
        if error := pairs[-1][-1].error:
            return {"error": error}
    votes = [_agrees(request, *pair) for pair in pairs]
    rows = any(gold.rows for _, gold, _ in pairs)
    likeness = [
        qatch(gold.rows, answer.rows, bag=request["likeness"] == "bags")
        for _, gold, answer in pairs
        if request["likeness"]
    ]
    for database in _others(request, databases) if False not in votes else ():
        gold = reference_rows(request["gold"], database, seconds)
        if gold.error:
            continue
        rows |= bool(gold.rows)
        votes.append(_agrees(request, database, gold, said_rows(stated, database, seconds)))
        if votes[-1] is False:
            break
    counted = [vote for vote in votes if vote is not None]
    return {"agree": sum(counted), "of": len(counted), "rows": rows, "likeness": likeness}


def _others(request: dict[str, Any], databases: list[Database]) -> Iterator[Database]:
    """The databases with their rows met in reverse, where order counts; with added rows; and with
    moved values.
    """
    sqlite, thin = request["engine"] == "sqlite", bool(request["seeds"])
    for database in databases:
        if request["ordered"] and (sqlite or (thin and not ROW_NUMBER.search(request["said"]))):
            yield replace(database, reverse=sqlite, backward=not sqlite)
        if not thin:
            continue
        yield from (replace(database, added=added) for added in request["added"])
        for seed in request["seeds"]:
            yield replace(database, seed=seed)
        if beside := literals_of(request["gold"]):
            yield replace(database, beside=beside)


def _agrees(
    request: dict[str, Any], database: Database, gold: ResultTable, stated: ResultTable
) -> bool | None:
    """Whether the query gives the rows of the reference, in its order where that is one; None if
    the reference itself gives other rows when its ties are broken otherwise, so that the instance
    does not count.

    A database that is given always counts: there the query must give the rows of the reference in
    one of its ways.
    """
    columns_ordered = request["columns_ordered"]

    def same(a: Rows, b: Rows, ordered: bool = request["ordered"]) -> bool:
        return same_rows(a, b, ordered=ordered, columns_ordered=columns_ordered)

    if stated.error or same(gold.rows, stated.rows):
        return not stated.error
    ways = _other_ways(request, database, gold)
    if all(same_rows(gold.rows, rows) for rows in ways):
        return request["ordered"] and same_up_to_ties(
            [gold.rows, *ways], stated.rows, columns_ordered=columns_ordered
        )
    if any(same(rows, stated.rows) for rows in ways):
        return True
    return False if database.whole and not database.reverse else None


def _other_ways(request: dict[str, Any], database: Database, gold: ResultTable) -> list[Rows]:
    """What the reference gives with its ties broken by columns, and with all rows stored
    backwards.
    """
    query, seconds = request["gold"], request["seconds"]
    forms = break_ties(request["bare"], len(gold.rows[0])) if gold.rows else ()
    tables = [reference_rows(form, database, seconds) for form in forms]
    if not database.path or request["seeds"]:
        turned = replace(database, backward=True, reverse=False)
        tables.append(reference_rows(query, turned, seconds))
    return [table.rows for table in tables if not table.error]


def report_ready() -> dict[str, Any]:
    return {"result": True}


if __name__ == "__main__":
    serve({"compared": compare_results}, report_ready, MEMORY)
