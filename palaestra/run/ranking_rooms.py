"""Where documents are ranked for the queries of data: worlds over a fixed retriever."""

from __future__ import annotations

from dataclasses import fields
from typing import TYPE_CHECKING, Any

from palaestra.context import Bench
from palaestra.run import benches
from palaestra.run.world_settings import check_world_settings
from palaestra.tasks.files import FileTasks
from palaestra.tasks.qrels import JudgedQueries
from palaestra.tasks.spec import parse_alone
from palaestra.verifiers.orders import ORDER_PASSAGES
from palaestra.worlds.eliminate import DROP_ONE, Eliminate
from palaestra.worlds.listwise import Listwise
from palaestra.worlds.query import WRITE_JSON, WriteQuery
from palaestra.worlds.retrieval import Retriever

if TYPE_CHECKING:
    from palaestra.settings.fields import Settings

QUERY, ELIMINATE, LISTWISE = benches.QUERY, benches.ELIMINATE, benches.LISTWISE


def in_queries(settings: Settings, instruction: str) -> Bench:
    """The user's own queries, for which a query is written as JSON: query, or query(k=10,deep=1000,qrels='FILE')."""
    given, qrels = settings_of(settings, QUERY, f"{WRITE_JSON} {instruction}".strip())
    check_world_settings(settings.env or QUERY, WriteQuery, given)
    world = WriteQuery(benches.retriever_of(settings, QUERY), **given)
    return ranking_bench(settings, world, judged_rows(settings, qrels))


def in_elimination(settings: Settings, instruction: str) -> Bench:
    """The user's own queries, whose candidates are dropped one after the other: eliminate, or
    eliminate(k=20,qrels='FILE').
    """
    given, qrels = settings_of(settings, ELIMINATE, f"{DROP_ONE} {instruction}".strip())
    check_world_settings(settings.env or ELIMINATE, Eliminate, given)
    world = Eliminate(retriever_or_items(settings, ELIMINATE), **given)
    return ranking_bench(settings, world, judged_rows(settings, qrels), world.k)


def in_lists(settings: Settings, instruction: str) -> Bench:
    """The user's own queries, whose candidates are ranked in one message: listwise, or
    listwise(k=20,deep=100,qrels='FILE').
    """
    given, qrels = settings_of(settings, LISTWISE, f"{ORDER_PASSAGES} {instruction}".strip())
    check_world_settings(settings.env or LISTWISE, Listwise, given)
    world = Listwise(retriever_or_items(settings, LISTWISE), **given)
    return ranking_bench(settings, world, judged_rows(settings, qrels))


def retriever_or_items(settings: Settings, room: str) -> Retriever | None:
    """The user's index or search; None where rows bring their candidates in the column `items`."""
    if settings.data and not settings.docs and not settings.tools:
        return None
    return benches.retriever_of(settings, room)


def settings_of(settings: Settings, room: str, usage: str) -> tuple[dict[str, Any], str]:
    """The settings of a world that --env has in brackets, and the file of judgements among them; "" =
    the column gold judges.
    """
    given: dict[str, Any] = {"usage": usage}
    if settings.env:
        given |= parse_alone(settings.env, f"{room}(k=N,qrels='FILE',...)").settings
    qrels = given.pop("qrels", "")
    return given, str(qrels)


def judged_rows(settings: Settings, qrels: str) -> FileTasks:
    """The user's queries, judged by their column `gold` or by a file of judgements. Queries for which the
    file names no relevant document are left out, and that is said.
    """
    rows = benches.rows_of(settings, answers=False)
    if not qrels:
        return rows
    values = {f.name: getattr(rows, f.name) for f in fields(rows)}
    return JudgedQueries(**values, qrels=qrels).without_unjudged()


def ranking_bench(settings: Settings, world: Any, tasks: FileTasks, turns: int = 1) -> Bench:
    """The queries in their world."""
    most = max(Bench.max_turns, turns)
    return Bench(name=settings.data, tasks=tasks, world=world, max_tokens=256, max_turns=most)
