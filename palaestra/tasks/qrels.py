"""Relevance judgements of queries, as TREC and BEIR write them, and queries that are judged by such a file.

    7 0 lions.md 2                 TREC: query, iteration, document, grade
    query-id corpus-id score       BEIR: a header, then query, document, grade
    7 lions.md 2

Fields stand between tabs or spaces. A line with `#` at its beginning, and an empty one, says nothing.
"""

from __future__ import annotations

import math
import os
from collections.abc import Mapping
from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from typing import TypeAlias

from palaestra.errors import UserError
from palaestra.tasks.files import FileTasks
from palaestra.tasks.records import BOM, decode_text
from palaestra.types import Task, stage

Judgements: TypeAlias = Mapping[str, Mapping[str, float]]  # grade by query and document


def read_qrels(path: str) -> Judgements:
    """The grades of a file, by query and document.

    Raises:
        UserError: where it cannot be read, a line has another form, or a pair has two grades.
    """
    file = Path(path).expanduser()
    if not file.is_file():
        raise UserError(
            f"{path}: there is no such file of judgements; lines are 'QUERY 0 DOC GRADE'"
        )
    grades = dict[str, dict[str, float]]()
    for n, line in enumerate(
        decode_text(file.read_bytes().removeprefix(BOM), path).splitlines(), 1
    ):
        fields = line.split("\t") if line.count("\t") >= 2 else line.split()
        if not line.strip() or line.startswith("#") or (n == 1 and is_header(fields)):
            continue
        query, document, grade = read_line([x.strip() for x in fields], f"{path}:{n}")
        given = grades.setdefault(query, {})
        if given.setdefault(document, grade) != grade:
            raise UserError(
                f"{path}:{n}: the document {document!r} has two grades for the query {query!r}"
            )
    if not grades:
        raise UserError(f"{path}: no judgements; lines are 'QUERY 0 DOC GRADE'")
    return grades


def is_header(fields: list[str]) -> bool:
    """Whether the first line names columns: its last field is no number."""
    try:
        float(fields[-1])
    except ValueError:
        return len(fields) in (3, 4)
    return False


def read_line(fields: list[str], where: str) -> tuple[str, str, float]:
    """Query, document and grade. Raises UserError where the line has no three or four fields, of which
    the last one is a number.
    """
    try:
        grade = float(fields[-1]) if len(fields) in (3, 4) else math.nan
    except ValueError:
        grade = math.nan
    if not math.isfinite(grade) or not all(fields):
        raise UserError(
            f"{where}: {' '.join(fields)[:60]!r} is no judgement; write 'QUERY 0 DOC GRADE', or 'QUERY "
            "DOC GRADE' with tabs"
        )
    return fields[0], fields[-2], grade


@lru_cache(maxsize=4)
def load_qrels(path: str, folder: str) -> Judgements:
    """`read_qrels`, once for each path; `folder` is where relative paths start."""
    return read_qrels(path)


@stage
class JudgedQueries(FileTasks):
    """Queries of a file, whose relevant documents another file names: by the query's `id`. They stand
    in the column `gold`, as a mapping from documents to grades.
    """

    qrels: str = ""
    unjudged: int = 0  # queries that were left out

    @property
    def notes(self) -> tuple[str, ...]:
        """Those of the file, and how many queries are left out."""
        own = f"{self.qrels} names no relevant document for {self.unjudged} queries, which are left out"
        return (*super().notes, *([own] if self.unjudged else []))

    def task(self, split: str, index: int) -> Task:
        given = FileTasks.task(self, split, index)
        grades = load_qrels(self.qrels, os.getcwd()).get(given.id, {})
        return replace(given, meta={**given.meta, "gold": dict(grades)})

    def without_unjudged(self) -> JudgedQueries:
        """These queries without those that have no document with a grade above 0.

        Raises:
            UserError: where the file judges none of them, or none of a split.
        """
        sizes = {"train": self.size, "test": self.test_size}
        every = [(split, i) for split, n in sizes.items() for i in range(n)]
        gone = [at for at in every if not is_judged(self.task(*at))]
        if len(gone) == len(every):
            raise UserError(
                f"{self.qrels}: it judges no query of {self.path}, such as "
                f"{self.task(*every[0]).id!r}; the first field of its lines is a query's column id"
            )
        for split, n in sizes.items():
            if n and sum(of == split for of, _ in gone) == n:
                kind = "held-out" if split == "test" else "training"
                raise UserError(
                    f"{self.qrels}: it judges none of the {n} {kind} queries of {self.path}; give judged ones in "
                    "--test-data, or mark them in a column split as train and test"
                )
        left = replace(self, omissions=FileTasks.without(self, gone).omissions) if gone else self
        return replace(left, unjudged=len(gone))


def is_judged(task: Task) -> bool:
    """Whether some document has a grade above 0."""
    return any(grade > 0 for grade in task.meta["gold"].values())
