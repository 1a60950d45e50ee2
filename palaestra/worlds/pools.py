"""Candidates of a query: what a fixed retriever finds, or those that a row lists, and how relevant each is."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from palaestra.errors import UserError
from palaestra.services.index import BM25, Hit, document_of
from palaestra.types import Task
from palaestra.verifiers.ranking import document_grades
from palaestra.worlds.retrieval import Retriever, find

ALL_ITEMS = "eliminate(k={n})"  # the environment in which all items of a row are candidates


async def candidates_of(
    task: Task,
    retriever: Retriever | None,
    k: int,
    kept: dict[str, tuple[Hit, ...]],
    wider: str = ALL_ITEMS,
) -> tuple[Hit, ...]:
    """The candidates of the task's query: its column `items`, else the `k` best of the retriever. `wider` is the
    environment that takes `n` of them, as a refusal says.

    Raises:
        UserError: for items that are none, of which two are the same, or more than `k`; and where there
            are neither items nor a retriever.
    """
    items = task.meta.get("items")
    if items:
        return read_items(items, retriever, k, f"task {task.id!r}", wider)
    if retriever is None:
        raise UserError(
            f"task {task.id!r} has no candidates; list them in the column items, or give --docs FOLDER"
        )
    return await find(retriever, task.prompt[-1].content, k, kept)


def read_items(
    items: Any, retriever: Retriever | None, k: int, of: str, wider: str = ALL_ITEMS
) -> tuple[Hit, ...]:
    """Candidates that a row lists: ids of documents, texts, or {"id": ..., "text": ...}."""
    known = dict(retriever.docs) if isinstance(retriever, BM25) else dict[str, str]()
    if isinstance(items, str | Mapping) or not isinstance(items, Sequence):
        raise UserError(
            f'{of}: items is {str(items)[:60]!r}; write a list, ["lions.md", "cats.md"]'
        )
    hits = [_item(x, known, of) for x in items]
    if len({i for i, _, _ in hits}) < len(hits):
        raise UserError(f"{of}: two of its items are the same; drop one, or give each an id")
    if len(hits) > k:
        raise UserError(
            f"{of} has {len(hits)} items, and at most {k} are ranked; --env '{wider.format(n=len(hits))}' "
            "ranks all"
        )
    return tuple(hits)


def _item(item: Any, known: Mapping[str, str], of: str) -> Hit:
    if isinstance(item, Mapping) and "id" in item and isinstance(item.get("text"), str):
        return str(item["id"]), item["text"], 0.0
    if isinstance(item, str | int) and not isinstance(item, bool) and str(item).strip():
        return str(item), known.get(str(item), str(item)), 0.0
    raise UserError(
        f'{of}: an item is {str(item)[:60]!r}; write the id of a document, a text, or {{"id": ..., "text": ...}}'
    )


def grade_of(name: str, grades: Mapping[str, float]) -> float:
    """How relevant a candidate is: its own grade, or that of the document that it is a passage of; else 0."""
    return max(0.0, grades.get(name, grades.get(document_of(name), 0.0)))


def grades_of(task: Task) -> dict[str, float]:
    """The grades of the task's column `gold`. Raises UserError where it has none."""
    if not task.prompt or not task.meta.get("gold"):
        raise UserError(
            f"task {task.id!r} of a ranking needs a query and its relevant documents; write their names in the "
            'column gold, as ["lions.md"], or drop the row'
        )
    return document_grades(task.meta["gold"], f"task {task.id!r}")


def draw_pool(
    hits: Sequence[Hit],
    grades: Mapping[str, float],
    retriever: Retriever | None,
    size: int,
    rng: np.random.Generator,
) -> tuple[Hit, ...]:
    """One relevant candidate and `size` - 1 less relevant ones, drawn at random: from the candidates, and where
    these do not suffice from the documents of the index. Fewer where there are not so many.
    """
    documents = (
        [(i, text, 0.0) for i, text in retriever.docs] if isinstance(retriever, BM25) else []
    )
    right = [h for h in hits if grade_of(h[0], grades)]
    right = right or [d for d in documents if grade_of(d[0], grades)]
    chosen = [right[int(rng.integers(len(right)))]] if right else []
    above = max((grade_of(h[0], grades) for h in chosen), default=math.inf)
    others = [h for h in hits if grade_of(h[0], grades) < above]
    chosen += [others[int(i)] for i in rng.permutation(len(others))[: size - len(chosen)]]
    names = {h[0] for h in hits}
    rest = [d for d in documents if d[0] not in names and not grade_of(d[0], grades)]
    missing = max(0, size - len(chosen))
    return (*chosen, *(rest[int(i)] for i in rng.permutation(len(rest))[:missing]))
