"""Multiple-choice questions from the facts of a graph: a chain of relations, one node of it asked for."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

import palaestra as pl

Triple = tuple[str, str, str]
ASK = "Start at {head} and follow {relations}. Where does that lead?"
TRIES = 50  # walks for one question


class QuestionGraph:
    """The facts of a graph, as walks need them."""

    def __init__(self, triples: Sequence[Triple]):
        self.triples = triples
        self.tails: Mapping[tuple[str, str], list[str]] = defaultdict(list)
        self.out: Mapping[str, list[tuple[str, str]]] = defaultdict(list)
        self.near: Mapping[str, set[tuple[str, str]]] = defaultdict(set)
        self.range: Mapping[str, set[str]] = defaultdict(set)
        for head, relation, tail in triples:
            self.tails[head, relation].append(tail)
            self.out[head].append((relation, tail))
            self.near[head].add((relation, tail))
            self.near[tail].add((f"of {relation}", head))
            self.range[relation].add(tail)
        self.least = min(len(near) for near in self.near.values())

    def ends(self, head: str, relations: Sequence[str]) -> set[str]:
        """The entities to which a chain of relations leads."""
        here = {head}
        for relation in relations:
            here = {tail for x in here for tail in self.tails.get((x, relation), ())}
        return here

    def walk(self, hops: int, rng: np.random.Generator) -> list[str]:
        """A walk [entity, relation, entity, ...] that visits nothing twice; shorter where it ends."""
        way = [self.triples[int(rng.integers(len(self.triples)))][0]]
        for _ in range(hops):
            on = [(r, t) for r, t in self.out[way[-1]] if t not in way[::2]]
            if not on:
                break
            way += on[int(rng.integers(len(on)))]
        return way

    def distractors(
        self, answer: str, relation: str, right: set[str], n: int, rng: np.random.Generator
    ) -> list[str]:
        """Wrong answers of the answer's kind, tails of the same relation: those that share most
        neighbours with it, equal ones in random order; fewer where the graph has fewer.
        """
        others = sorted(self.range[relation] - right)
        rng.shuffle(others)
        others.sort(key=lambda x: -len(self.near[x] & self.near[answer]))
        return others[:n]


def rarity(graph: QuestionGraph, entity: str, rare: float) -> float:
    """(least degree / degree) ^ rare: how readily a question for an entity is kept, in (0, 1]."""
    return (graph.least / len(graph.near[entity])) ** rare


def reads_as_label(name: str) -> bool:
    """Whether a name could mean the letter or the number of another option."""
    return len(name) == 1 or name.isdigit()


def question(
    graph: QuestionGraph, hops: int, choices: int, rare: float, rng: np.random.Generator
) -> dict[str, Any] | None:
    """A question with options of which one is right, and its working; None where this walk gives none, or
    an option could be read as the label of another."""
    way = graph.walk(hops, rng)
    if len(way) != 2 * hops + 1:
        return None
    head, relations, answer = way[0], way[1::2], way[-1]
    right = graph.ends(head, relations)
    wrong = graph.distractors(answer, relations[-1], right | {head}, choices - 1, rng)
    if not wrong or any(map(reads_as_label, (answer, *wrong))):
        return None
    if rng.random() >= rarity(graph, answer, rare):
        return None
    options = [answer, *wrong]
    rng.shuffle(options)
    steps = [f"{a}, {r}: {b}" for a, r, b in zip(way[:-1:2], relations, way[2::2], strict=True)]
    return {
        "prompt": ASK.format(head=head, relations=", then ".join(relations)),
        "options": options,
        "answer": answer,
        "hops": hops,
        "demonstration": "\n".join([*steps, f"Answer: {answer}"]),
    }


def mark_held_out(records: Sequence[dict[str, Any]], n: int) -> None:
    """Sets the column `split`: "test" for the last `n` questions of several relations, else "train"."""
    several = [i for i, row in enumerate(records) if row["hops"] > 1]
    held = set(several[-n:])
    for i, row in enumerate(records):
        row["split"] = "test" if i in held else "train"


@pl.stage
class WriteGraphQuestions:
    """A program: writes `n` different questions over the facts of a graph, of 1 to `hops` relations.

    Args:
        graph: a file of facts, as `--graph` reads one; "" = a made-up one.
        choices: options of a question, at most.
        rare: entities of the degree d are asked for with the weight d ^ -rare; 0 = as walks come.
        rows: a file of further questions of people (prompt, answer, and options where there are), which
            are written as they are; "" = none.
        held_out: questions of two relations or more that are marked as held out, so that every fact is
            trained on; 0 = none is marked, and a run holds a tenth out.
        bare: without the column `demonstration`, the facts in order: a teacher writes it.
    """

    graph: str = ""
    n: int = 4096
    hops: int = 3
    choices: int = 4
    rare: float = 1.0
    rows: str = ""
    held_out: int = 0
    bare: bool = False

    async def run(self, ctx: pl.Context) -> pl.Result:
        facts = (
            pl.tasks.read_triples(self.graph)
            if self.graph
            else pl.toys.GraphTasks(pages=24, missing=0.0).triples()
        )
        graph, made = QuestionGraph(facts), dict[str, Mapping[str, Any]]()
        for i in range(TRIES * self.n):
            if len(made) == self.n:
                break
            rng = pl.rng_of((*ctx.key("questions"), i))
            row = question(graph, 1 + i % self.hops, self.choices, self.rare, rng)
            if row is not None:
                made.setdefault(row["prompt"], {"id": f"graph-{len(made)}", **row})
        if not made:
            raise pl.UserError(
                f"{self.graph}: no question can be made of these facts; a relation needs two or more "
                "different tails, with names that are no single letter and no number"
            )
        if len(made) < self.n:
            ctx.say(f"fleming-r1: the graph gives {len(made)} different questions, not {self.n}")
        records = [dict(row) for row in made.values()]
        if self.held_out:
            mark_held_out(records, self.held_out)
        for row in records if self.bare else ():
            del row["demonstration"]
        if self.rows:
            records += [dict(r) for part in pl.tasks.open_records(self.rows).values() for r in part]
        file = pl.tasks.write_records(ctx.folder / "questions.jsonl", records)
        return pl.Result(metrics={"questions": len(records)}, artifacts={"questions": file})
