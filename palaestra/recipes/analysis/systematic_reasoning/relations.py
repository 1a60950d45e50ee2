"""Relations as rows of data give them, and problems as the study asks them."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import palaestra as pl


@dataclass(frozen=True, slots=True)
class AskedRelation:
    """A problem and its answers: length and number of paths, the sets that its paths allow, the gold label,
    what each model says (a label, or None) and how often it is right.
    """

    item: pl.studies.Item
    k: int
    b: int
    sets: Sequence[Sequence[str]]
    gold: str
    relations: int
    said: Mapping[str, Sequence[str | None]]
    texts: Mapping[str, Sequence[str]]
    right: Mapping[str, float]
    consistent: bool = True

    def json(self) -> dict[str, Any]:
        kept = {x: self.item[x] for x in ("problem", "id", "prompt", "gold")}
        answers = {m: {"said": self.said[m], "texts": self.texts[m]} for m in self.said}
        return {**kept, "k": self.k, "b": self.b, "allowed": self.sets, "answers": answers}


def read_item(
    ctx: pl.Context,
    name: Any,
    number: int,
    items: Mapping[str, pl.studies.Item],
    labels: Sequence[str] | None,
) -> AskedRelation:
    """A problem with what its graph says. Raises UserError for a graph that cannot be read."""
    task, known = ctx.bench.tasks.task("test", number), pl.toys.calculus_of(name)
    labels = labels or known.labels
    edges, query = graph_of_row(task, labels)
    paths = pl.toys.paths_of(edges, query) or pl.toys.paths_of(
        led_away(name, edges, labels, query[0]), query
    )
    if not paths:
        raise pl.UserError(
            f"row {task.id!r}: its `edges` connect {query[0]} and {query[1]} in no direction"
        )
    values = [known.along([labels.index(r) for r in path]) for path in paths]
    spell = lambda value: [labels[i] for i in pl.toys.members(value)]
    gold = str(task.answer).strip()
    nodes = {x: i for i, x in enumerate(dict.fromkeys(n for x, _, y in edges for n in (x, y)))}
    left = pl.toys.closure(
        known, [(nodes[x], labels.index(r), nodes[y]) for x, r, y in edges], len(nodes)
    )
    texts = {m: x["texts"] for m, x in items.items()}
    return AskedRelation(
        item=items["policy"],
        k=min(map(len, paths)),
        b=len(paths),
        sets=[spell(v) for v in values],
        gold=gold,
        relations=len(labels),
        said={m: [pl.toys.label_said(t, labels) for t in some] for m, some in texts.items()},
        texts=texts,
        right={m: pl.studies.right_shares([x])[0] for m, x in items.items()},
        consistent=left is not None and spell(left[nodes[query[0]]][nodes[query[1]]]) == [gold],
    )


def led_away(
    name: Any, edges: Sequence[tuple[Any, str, Any]], labels: Sequence[str], start: Any
) -> list[tuple[Any, str, Any]]:
    """The edges, each led away from a node, with the converse of its relation where that turns it: that y
    is after x says what x before y says.
    """
    known, far, front = pl.toys.calculus_of(name), {start: 0}, [start]
    while front:
        near = {y for a, _, b in edges for x, y in ((a, b), (b, a)) if x in front and y not in far}
        far |= dict.fromkeys(near, far[front[0]] + 1)
        front = [*near]
    turn = lambda r: labels[pl.toys.members(known.converse(1 << labels.index(r)))[0]]
    return [(y, turn(r), x) if far.get(y, 0) < far.get(x, 0) else (x, r, y) for x, r, y in edges]


def graph_of_row(
    task: pl.Task, labels: Sequence[str]
) -> tuple[list[tuple[Any, str, Any]], tuple[Any, Any]]:
    """The edges and the query of a row. Raises UserError with what is wrong."""
    edges, query = task.meta.get("edges"), task.meta.get("query")
    fault = pl.UserError(
        f'row {task.id!r} needs "edges": [[0, "{labels[0]}", 1], ...] and "query": [0, 2]'
    )
    try:
        read, pair = [(x, str(r), y) for x, r, y in edges or ()], [*(query or ())]
    except (TypeError, ValueError):
        raise fault from None
    if not read or len(pair) != 2:
        raise fault
    if strange := [r for _, r, _ in read if r not in labels]:
        raise pl.UserError(
            f"row {task.id!r}: {strange[0]!r} is no relation here; they are {', '.join(labels)} "
            "(calculus=rcc8 or interval names the others)"
        )
    return read, (pair[0], pair[1])
