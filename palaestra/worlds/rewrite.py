"""Queries that are rewritten once for a fixed retriever, which is then asked.

    boss of bako?    <query>chief and boss of bako</query>        NDCG@10 of what is found

A message may have anything before its one <query>, thoughts and other tags too.
"""

from __future__ import annotations

import re
from dataclasses import replace
from functools import cached_property
from typing import ClassVar

from palaestra.declared import declare
from palaestra.errors import UserError
from palaestra.services.index import STOP_WORDS, Hit, words_of
from palaestra.types import Act, Ask, Frame, Key, Task, need_at_least, stage
from palaestra.verifiers.base import strip_thinking
from palaestra.verifiers.ranking import document_grades, ndcg, rank_sources
from palaestra.worlds.retrieval import Retriever, check_gold, find

REWRITE_IT = (
    "This is a query for a search engine. Rewrite it so that the documents that it is after are "
    "found first, and write <query>the rewritten query</query>."
)
QUERY = re.compile(r"<query>((?:(?!</?query>).)*)</query>", re.DOTALL)


@declare(
    facts=(
        "query",
        "ndcg",
        "ndcg_plain",
        "copied",
        "ranking",
        "malformed",
        "answered",
        "correct",
    ),
    reads_columns=("gold",),
)
@stage
class RewriteQuery:
    """Pays NDCG@k of what the rewritten query finds, against the task's `meta["gold"]`: ids of
    relevant documents, or a mapping from ids to grades. Without one query in tags it pays 0.

    Args:
        retriever: that is asked; it stays as it is.
        k: documents that count.
        usage: what stands behind the query; "" = nothing, for models that know what to do.
        told: whether it does.
    """

    retriever: Retriever
    k: int = 10
    usage: str = REWRITE_IT
    told: bool = True
    turns: ClassVar[int] = 1
    seats: tuple[str, ...] = ("policy",)
    solved: ClassVar[float] = 1.0
    bounds: ClassVar[tuple[float, float]] = (0.0, 1.0)

    def __post_init__(self) -> None:
        need_at_least(self, k=1)

    def reset(self, task: Task, key: Key) -> Frame:
        if not task.prompt or not task.meta.get("gold"):
            raise UserError(
                f"task {task.id!r} of a search needs a query and its gold documents; write their "
                'names in the column gold, as ["lions.md"], or name yours: --columns THEIRS=meta.gold; '
                "or drop the row"
            )
        grades = document_grades(task.meta["gold"], f"task {task.id!r}")
        check_gold(self.retriever, grades, task)
        *before, last = task.prompt
        content = f"{last.content}\n\n{self.usage}" if self.told and self.usage else last.content
        say = (*before, replace(last, content=content))
        return Frame(state=task, asks=(Ask(seat="policy", say=say),))

    async def step(self, state: Task, acts: tuple[Act, ...], key: Key) -> Frame:
        given, query = state.prompt[-1].content, read_query(acts[0].text)
        grades = document_grades(state.meta["gold"], f"task {state.id!r}")
        plain = await self._ranking(given, grades)
        ranking = await self._ranking(query, grades) if query else ()
        worth = ndcg(ranking, grades, self.k)
        facts = {
            "query": query,
            "ndcg": worth,
            "ndcg_plain": ndcg(plain, grades, self.k),
            "copied": is_copy(query, given),
            "ranking": ranking,
            "malformed": int(not query),
            "answered": bool(query),
            "correct": worth == 1.0,
        }
        return Frame(state=state, pay={("policy", ""): worth}, facts=facts)

    def oracle(self, state: Task) -> str:
        """The task's demonstration, else the query as it is."""
        own = state.meta.get("demonstration")
        return own if isinstance(own, str) else f"<query>{state.prompt[-1].content}</query>"

    def is_solution(self, task: Task) -> bool:
        """Whether the oracle's query must find everything: a demonstration, not the user's own words."""
        return isinstance(task.meta.get("demonstration"), str)

    async def _ranking(self, query: str, grades: dict[str, float]) -> tuple[str, ...]:
        hits = await find(self.retriever, query, self.k, self._kept)
        return tuple(rank_sources([i for i, _, _ in hits], grades))

    @cached_property
    def _kept(self) -> dict[str, tuple[Hit, ...]]:
        return {}


def read_query(text: str) -> str:
    """The query of a message, behind its thoughts; "" where there is none, or several."""
    written = QUERY.findall(strip_thinking(text))
    return written[0].strip() if len(written) == 1 else ""


def is_copy(query: str, given: str) -> bool:
    """Whether a query has all words of the given one, in their order, and adds at most stop words, such
    as "the" or "what", which no search gains by.
    """
    words, rest = words_of(given), list[str]()
    for word in words_of(query):
        if words and word == words[0]:
            words = words[1:]
        else:
            rest.append(word)
    return bool(words_of(query)) and not words and STOP_WORDS.issuperset(rest)
