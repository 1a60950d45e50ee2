"""T-relations: what follows from a chain of relations, or from several at once.

user: 0e1 1f2: 0?2          assistant: e.f=f \\n = f
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from itertools import combinations
from typing import Literal

import numpy as np

from palaestra.abilities import Habit
from palaestra.declared import declare
from palaestra.errors import UserError
from palaestra.tasks.procedural import (
    answer_lines,
    draw_task,
    final_answer,
    format_answer,
    question_task,
)
from palaestra.toys.algebras import MEANINGS, Calculus, CalculusName, calculus_of, members
from palaestra.types import Task, need_at_least, stage

MOST_PATHS = 4
LETTERS = "abcdefghijklm"


@declare(
    columns=(
        ("edges", tuple, "relations between things, each as (from, relation, to)"),
        ("query", tuple, "the two things whose relation is asked for"),
    )
)
@stage
class Relations:
    """`b` paths of `k` relations lead from one thing to another; the answer is the one relation that they
    have in common. One path alone determines it where b = 1; else each path alone allows several.
    Answers are balanced over the relations that can be one.

    Args:
        table: the composition table in the prompt: none of it, the entries that the paths need, or all.
        letters: relations are single letters, and the prompt has no sentence.
    """

    calculus: CalculusName = "interval"
    k: int = 2
    b: int = 1
    table: Literal["none", "needed", "whole"] = "none"
    letters: bool = False
    name: str = "relations"
    size: int | None = None
    max_tokens: int = 96

    def __post_init__(self) -> None:
        need_at_least(self, k=2, b=1)
        if self.b > MOST_PATHS:
            raise UserError(f"relations: b is at most {MOST_PATHS}, not {self.b}")

    @property
    def labels(self) -> tuple[str, ...]:
        """What the relations are called here."""
        known = calculus_of(self.calculus).labels
        return tuple(LETTERS[: len(known)]) if self.letters else known

    def task(self, split: str, index: int) -> Task:
        return draw_task(self, split, index, self._draw)

    def _draw(self, rng: np.random.Generator) -> Task:
        kinds = answers_of(self.calculus, self.k, self.b)
        if not kinds:
            raise UserError(
                f"relations: no {self.b} paths of {self.k} relations have one in common; take another b or k"
            )
        labels = sorted(kinds)
        answer = labels[int(rng.integers(len(labels)))]
        sets = kinds[answer][int(rng.integers(len(kinds[answer])))]
        paths = [draw_path(self.calculus, self.k, each, rng) for each in sets]
        edges, query = graph_of([paths[int(i)] for i in rng.permutation(self.b)])
        spelled = tuple((x, self.labels[r], y) for x, r, y in edges)
        return question_task(
            self.name,
            self._question(paths, spelled, query),
            self.labels[answer],
            {"edges": spelled, "query": query},
        )

    def _question(
        self,
        paths: list[list[int]],
        edges: tuple[tuple[int, str, int], ...],
        query: tuple[int, int],
    ) -> str:
        known = calculus_of(self.calculus)
        rows = needed_entries(known, paths)
        if self.table == "whole":
            every = range(len(known.labels))
            rows = [(r, s) for r in every for s in every]
        lines = [self._line(1 << r, 1 << s) for r, s in (rows if self.table != "none" else ())]
        if self.letters:
            graph = " ".join(f"{x}{r}{y}" for x, r, y in edges)
            return "\n".join([*lines, f"{graph}: {query[0]}?{query[1]}"])
        ask = (
            f"Which relation does {query[0]} have to {query[1]}? Answer with one of "
            f"{', '.join(self.labels)}."
        )
        rules = (
            ["x.y=z: who has x to something that has y to a third, has z to it.", *lines]
            if lines
            else []
        )
        graph = "\n".join(f"{x} {r} {y}" for x, r, y in edges)
        return "\n".join([f"Relations: {MEANINGS[self.calculus]}.", *rules, graph, ask])

    def _line(self, first: int, second: int) -> str:
        """The composition of two sets as a line."""
        known = calculus_of(self.calculus)
        spell = lambda some: "|".join(self.labels[i] for i in members(some))
        return f"{spell(first)}.{spell(second)}={spell(known.compose(first, second))}"

    def check(self, text: str, task: Task) -> float:
        """1 for the relation, in any form of a final answer."""
        return float(label_said(text, self.labels) == task.answer)

    def demonstration(self, task: Task, rng: np.random.Generator, habit: Habit) -> str:
        """Each path relation by relation, as sets, and what they have in common."""
        if habit == "guess":
            return format_answer([], task.answer)
        lines, known = list[str](), calculus_of(self.calculus)
        for path in paths_of(task.meta["edges"], task.meta["query"]):
            value = 1 << self.labels.index(path[0])
            for label in path[1:]:
                r = 1 << self.labels.index(label)
                lines.append(self._line(value, r))
                value = known.compose(value, r)
        return format_answer(lines, task.answer)


def label_said(text: str, labels: Sequence[str]) -> str | None:
    """The label that a text's final answer is: behind `= `, else the only one that its last line names,
    or the one that it ends with behind "is", a colon or the like. None = none, or several.
    """
    final = final_answer(text)
    if final is not None:
        return final if final in labels else None
    lines = answer_lines(text)
    name = "|".join(map(re.escape, sorted(labels, key=len, reverse=True)))
    named = re.findall(rf"(?<![^\W_])(?:{name})(?!\w)", lines[-1]) if lines else []
    last = re.search(rf"(?:\bis|[:={{>])\W*({name})\W*(?:</\w+>\W*)?$", lines[-1] if lines else "")
    if len({*named}) == 1:
        return named[0]
    return last[1] if last else None


def graph_of(paths: list[list[int]]) -> tuple[list[tuple[int, int, int]], tuple[int, int]]:
    """Edges (from, relation, to) of disjoint paths from 0 to the last node, and these two."""
    inner = sum(len(p) - 1 for p in paths)
    edges, node = list[tuple[int, int, int]](), 0
    for path in paths:
        here = 0
        for r in path[:-1]:
            node += 1
            edges.append((here, r, node))
            here = node
        edges.append((here, path[-1], inner + 1))
    return edges, (0, inner + 1)


def paths_of(edges: Iterable[tuple[int, str, int]], query: tuple[int, int]) -> list[list[str]]:
    """Paths without a common edge between the two of a query, as relations: the shortest one first, the
    others from the edges that are left.
    """
    left, paths = [(x, r, y) for x, r, y in edges], list[list[str]]()
    while path := shortest_path(left, query):
        paths.append([e[1] for e in path])
        left = [e for e in left if e not in path]
    return paths


def shortest_path(
    edges: list[tuple[int, str, int]], query: tuple[int, int]
) -> list[tuple[int, str, int]]:
    """The edges of a shortest path; none where there is no path."""
    ways: dict[int, list[tuple[int, str, int]]] = {query[0]: []}
    front = [query[0]]
    while front and query[1] not in ways:
        front, before = [], front
        for edge in edges:
            if edge[0] in before and edge[2] not in ways:
                ways[edge[2]] = [*ways[edge[0]], edge]
                front.append(edge[2])
    return ways.get(query[1], [])


def needed_entries(known: Calculus, paths: list[list[int]]) -> list[tuple[int, int]]:
    """The entries of the table that the paths need, from left to right, each once."""
    pairs = dict[tuple[int, int], None]()
    for path in paths:
        value = 1 << path[0]
        for s in path[1:]:
            pairs |= dict.fromkeys((r, s) for r in members(value))
            value = known.compose(value, 1 << s)
    return list(pairs)


@lru_cache
def counts_of(name: CalculusName, k: int) -> tuple[Mapping[int, int], ...]:
    """How many paths of 1, 2, ... k relations have each set as their value; identity is on none."""
    known = calculus_of(name)
    steps = range(len(known.labels) - 1)
    counts: list[dict[int, int]] = [{1 << r: 1 for r in steps}]
    for _ in range(k - 1):
        after = dict[int, int]()
        for value, n in counts[-1].items():
            for r in steps:
                to = known.compose(value, 1 << r)
                after[to] = after.get(to, 0) + n
        counts.append(after)
    return tuple(counts)


def draw_path(name: CalculusName, k: int, value: int, rng: np.random.Generator) -> list[int]:
    """A path of k relations with a value, each one with the same chance: drawn from its end, each step by
    the number of paths that lead up to it.
    """
    path = list[int]()
    for j in range(k - 1, 0, -1):
        ways, chances = ways_into(name, j, value)
        r, value = ways[int(rng.choice(len(ways), p=chances))]
        path.append(r)
    (first,) = members(value)
    return [first, *reversed(path)]


@lru_cache(maxsize=4096)
def ways_into(name: CalculusName, j: int, value: int) -> tuple[list[tuple[int, int]], list[float]]:
    """The last relations of paths of j + 1 relations with a value, with the value before each, and the
    share of the paths that end so.
    """
    known = calculus_of(name)
    ways = [
        (r, before, n)
        for before, n in counts_of(name, j)[-1].items()
        for r in range(len(known.labels) - 1)
        if known.compose(before, 1 << r) == value
    ]
    total = sum(n for _, _, n in ways)
    return [(r, before) for r, before, _ in ways], [n / total for _, _, n in ways]


@lru_cache
def answers_of(name: CalculusName, k: int, b: int) -> Mapping[int, list[tuple[int, ...]]]:
    """By answer, the sets of b paths of k relations that have it alone in common: each set allows several
    relations, though not all, and no two are equal.
    """
    known = calculus_of(name)
    values = sorted(counts_of(name, k)[-1])
    if b == 1:
        return {members(v)[0]: [(v,)] for v in values if len(members(v)) == 1}
    some = [v for v in values if 1 < len(members(v)) < len(known.labels)]
    sets_by_answer: dict[int, list[tuple[int, ...]]] = {}
    for sets in combinations(some, b):
        common = members(intersection(known, sets))
        if len(common) == 1:
            sets_by_answer.setdefault(common[0], []).append(sets)
    return sets_by_answer


def intersection(known: Calculus, sets: Iterable[int]) -> int:
    common = known.everything
    for each in sets:
        common &= each
    return common
