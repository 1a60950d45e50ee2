"""T-queries: queries over the wiki of `WikiTasks` whose words are not those of the pages. Three kinds
need a rewrite each, and what helps one of them does not help the others.

kind     query                                          what finds the page first
words    chief of bako?                                 expansion   chief boss of bako
long     boss of bako, not host of tiru?                concise     boss of bako
claim    tiru, sure: tiru is boss of bako?              neutral     boss of bako
"""

from __future__ import annotations

from dataclasses import field
from json import dumps
from typing import TypeAlias

import numpy as np

from palaestra.declared import declare
from palaestra.tasks.procedural import draw_task, question_task
from palaestra.toys.wiki import RELATIONS, WikiTasks, wiki
from palaestra.types import Task, stage

Rewrites: TypeAlias = dict[str, str]  # by strategy

OTHER_WORD = {"boss": "chief", "heir": "child", "host": "owner", "twin": "double"}
RIGHT = {"words": "expansion", "long": "concise", "claim": "neutral"}


@declare(
    columns=(
        ("rewrites", dict, "by the name of a strategy, the query as that rewrites it"),
        ("query_kind", str, "which rewrite the query needs"),
    )
)
@stage
class QueryTasks:
    """Queries after one page of a wiki, and what each of three strategies makes of them. A task's
    meta: "gold", the page; "rewrites"; "query_kind"; "demonstration", the rewrite that finds the page, in
    tags with its strategy, or with `json` as an object {"query": ...}.
    """

    pages: int = 256
    seed: int = 0
    name: str = "queries"
    size: int | None = None
    json: bool = field(
        default=False, repr=False
    )  # the stream of random numbers is named by the others

    def documents(self) -> tuple[tuple[str, str], ...]:
        return WikiTasks(pages=self.pages, seed=self.seed).documents()

    def task(self, split: str, index: int) -> Task:
        return draw_task(self, split, index, self._draw)

    def _draw(self, rng: np.random.Generator) -> Task:
        facts = wiki(self.pages, self.seed)
        people = list(facts)
        kind = list(RIGHT)[int(rng.integers(len(RIGHT)))]
        who, other = (people[int(i)] for i in rng.choice(len(people), 2, replace=False))
        way, beside = (RELATIONS[int(i)] for i in rng.choice(len(RELATIONS), 2, replace=False))
        if facts[who][way] == other:  # a claim is never true
            other = next(p for p in people if p not in (who, other))
        query, rewrites = write_query(kind, way, who, beside, other)
        strategy = RIGHT[kind]
        right = rewrites[strategy]
        tagged = f"<strategy>{strategy}</strategy><query>{right}</query>"
        meta = {
            "gold": (f"{who}/{way}",),
            "query_kind": kind,
            "rewrites": rewrites,
            "demonstration": dumps({"query": right}) if self.json else tagged,
        }
        return question_task(self.name, query, None, meta)


def write_query(kind: str, way: str, who: str, beside: str, other: str) -> tuple[str, Rewrites]:
    """A query after `way` of `who`, and what each strategy makes of it. `beside` and `other` are
    another relation and person, with which it is noisy.
    """
    right, added = f"{way} of {who}", OTHER_WORD[way]
    if kind == "words":
        question = f"{added} of {who}"
        return f"{question}?", {
            "expansion": f"{added} {right}",
            "concise": question,
            "neutral": f"who is {question}",
        }
    if kind == "long":
        question = f"{right}, not {beside} of {other}"
        return f"{question}?", {
            "expansion": f"{added} {question}",
            "concise": right,
            "neutral": f"who is {question}",
        }
    question = f"{other} is {right}"
    return f"{other}, sure: {question}?", {
        "expansion": f"{other}, sure: {other} is {added} {right}",
        "concise": f"{other} {other} {right}",
        "neutral": right,
    }
