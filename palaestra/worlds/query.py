"""Queries that a model writes as JSON for a fixed retriever, which is then asked: `RewriteQuery` with another form,
and with a deeper ranking beside the one that counts.

    chief of bako?    {"query": "chief boss bako"}        NDCG@10 of what is found, NDCG@1000 beside it
"""

from __future__ import annotations

import json
import re
from typing import Any

from palaestra.declared import declare
from palaestra.services.index import words_of
from palaestra.types import Act, Frame, Key, Task, need_at_least, stage
from palaestra.verifiers.base import strip_thinking
from palaestra.verifiers.ranking import document_grades, ndcg, rank_sources
from palaestra.worlds.retrieval import find
from palaestra.worlds.rewrite import RewriteQuery, is_copy

WRITE_JSON = (
    "This is what a user looks for. Write the query with which a search engine finds it, as JSON: "
    '{"query": "the words of the query"}.'
)
KEPT = 100  # documents of a ranking that are facts
OBJECT = re.compile(r"\{")


@declare(
    facts=(
        "query",
        "ndcg",
        "ndcg_plain",
        ("ndcg_deep", float, "of the deeper ranking of what the query finds"),
        "copied",
        "ranking",
        "ranking_plain",
        ("query_words", int, "words of the query"),
        "malformed",
        "answered",
        "correct",
    ),
    reads_columns=("gold",),
)
@stage
class WriteQuery(RewriteQuery):
    """Pays NDCG@k of what the query of a message {"query": "..."} finds, against the task's `meta["gold"]`.

    The object may stand in <answer>, in a fence, or alone, behind thoughts and other words; the value
    may be a list of texts. A message without such an object, or with several that differ, pays 0.

    Args:
        retriever: that is asked; it stays as it is.
        k: documents that count.
        usage: what stands behind the query of the user; "" = nothing.
        told: whether it does.
        deep: documents of the deeper ranking, whose NDCG is a fact: it tells two queries apart that both
            find nothing among the first `k`.
    """

    usage: str = WRITE_JSON
    deep: int = 1000

    def __post_init__(self) -> None:
        need_at_least(self, k=1, deep=self.k)

    async def step(self, state: Task, acts: tuple[Act, ...], key: Key) -> Frame:
        given, query = state.prompt[-1].content, read_json_query(acts[0].text)
        grades = document_grades(state.meta["gold"], f"task {state.id!r}")
        plain = await self._deep_ranking(given, grades)
        ranking = await self._deep_ranking(query, grades) if query else ()
        worth = ndcg(ranking, grades, self.k)
        facts = {
            "query": query,
            "ndcg": worth,
            "ndcg_plain": ndcg(plain, grades, self.k),
            "ndcg_deep": ndcg(ranking, grades, self.deep),
            "copied": is_copy(query, given),
            "ranking": ranking[:KEPT],
            "ranking_plain": plain[:KEPT],
            "query_words": len(words_of(query)),
            "malformed": int(not query),
            "answered": bool(query),
            "correct": worth == 1.0,
        }
        return Frame(state=state, pay={("policy", ""): worth}, facts=facts)

    def oracle(self, state: Task) -> str:
        """The task's demonstration, else the user's words as they are."""
        own = state.meta.get("demonstration")
        return own if isinstance(own, str) else write_query(state.prompt[-1].content)

    async def _deep_ranking(self, query: str, grades: dict[str, float]) -> tuple[str, ...]:
        hits = await find(self.retriever, query, self.deep, self._kept)
        return tuple(rank_sources([i for i, _, _ in hits], grades))


def write_query(text: str) -> str:
    """The message that asks for a text."""
    return json.dumps({"query": text}, ensure_ascii=False)


def read_json_query(text: str) -> str:
    """The query of a message, behind its thoughts; "" where there is none, or several that differ."""
    reply = strip_thinking(text)
    queries = {query for query in map(query_of, json_objects(reply)) if query}
    return queries.pop() if len(queries) == 1 else ""


def json_objects(text: str) -> list[Any]:
    """The outermost JSON objects of a text, in order."""
    decoder, objects, at = json.JSONDecoder(), list[Any](), 0
    while (match := OBJECT.search(text, at)) is not None:
        try:
            value, at = decoder.raw_decode(text, match.start())
            objects.append(value)
        except (ValueError, RecursionError):
            at = match.end()
    return objects


def query_of(value: Any) -> str:
    """The query of an object: a text with a word, or texts; else ""."""
    query = value.get("query")
    texts = query if isinstance(query, list) else [query]
    if not texts or not all(isinstance(x, str) for x in texts):
        return ""
    joined = " ".join(" ".join(texts).split())
    return joined if words_of(joined) else ""
