"""Queries that are copied from the documents that they shall find: a search by words finds those, and nothing is learned."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from palaestra.errors import UserError
from palaestra.services.index import BM25, document_of, words_of
from palaestra.types import Task
from palaestra.verifiers.ranking import document_grades

IN_A_ROW = 8  # words of a query that no one writes anew by chance
WHOLE = 4  # words of a query that is shorter than that and stands whole in a document
MOST = 256  # queries that are looked at
SHARE = 0.2  # of them, from which on it is said


def copied_note(tasks: Iterable[Task], index: BM25) -> str:
    """What is to be said of queries whose words stand in a row in a document that is relevant to them;
    "" = they are few.

    Args:
        tasks: queries, whose relevant documents the column `gold` names.
        index: that has these documents.
    """
    judged, copied, first = 0, 0, ""
    for task in tasks:
        texts = relevant_texts(task, index)
        judged += bool(texts)
        query = task.prompt[-1].content
        if any(is_copied(query, text) for text in texts):
            copied, first = copied + 1, first or query
    if copied < max(2, SHARE * judged):
        return ""
    return (
        f"{copied} of {judged} queries stand, whole or {IN_A_ROW} words in a row, in a document that is relevant to "
        f"them, e.g. {first[:60]!r}: a search by words finds those; look at the others apart"
    )


def relevant_texts(task: Task, index: BM25) -> list[str]:
    """The texts of the documents that the task names; a name that the index does not have is left out."""
    gold: Any = task.meta.get("gold")
    try:
        grades = document_grades(gold, task.id) if gold else {}
    except UserError:  # said with its record where the task is drawn
        return []
    names = [name for name, grade in grades.items() if grade > 0]
    return [
        text
        for name in names
        for page in dict.fromkeys((name, document_of(name)))
        for passage, text in index.pages.get(page, ())
        if name in (passage, document_of(passage))
    ]


def is_copied(query: str, text: str) -> bool:
    """Whether the query, or some words of it in a row, stand in a text, whatever the marks and the case."""
    words = words_of(query)
    document = f" {' '.join(words_of(text))} "
    if len(words) < IN_A_ROW:
        return len(words) >= WHOLE and f" {' '.join(words)} " in document
    runs = (words[i : i + IN_A_ROW] for i in range(len(words) - IN_A_ROW + 1))
    return any(f" {' '.join(run)} " in document for run in runs)
