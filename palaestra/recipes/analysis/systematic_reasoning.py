"""Systematic relational reasoning: does a model compose relations along longer paths, and does it combine
what several paths say, than it ever saw (arXiv:2503.23487)? A study: nothing is trained.

    k, b       b paths without a common edge, of k relations each, lead from one thing to another
    value      of a path: the composition of its relations, the set of those that are possible
    answer     the one relation that all paths allow. b = 1: the path determines it; b > 1: each path
               alone allows several
    cells      accuracy for each k and b, beside three guesses:
        chance         1 / the number of relations (13 of intervals, 8 of regions)
        most frequent  always the label that is the answer most often
        shortest path  one of the relations that a shortest path allows, at random: mean of 1 / |set|
    boundary   the greatest k up to which, at one b, accuracy is above the best guess with 95% confidence
    shallow    of wrong answers where b > 1, the share that some one path alone allows

    palaestra study systematic-reasoning --model M [--base B]
    palaestra study systematic-reasoning --model M --task "relations(calculus='rcc8',table='whole')" ks=[2,4,8]
    palaestra study systematic-reasoning --model M --data problems.jsonl calculus=rcc8

The table of compositions is in the prompt or not, as `table` of the problem says: "whole", "needed" (the
entries that the paths need) or "none". Problems of a user are rows with `edges`, a list of [from, relation,
to], and `query`, the pair that is asked for: k is then the length of a shortest path, b the number of paths
that are found one after another without a common edge (against the direction of edges, with the converse of
their relation, where none leads along it), and answers that contradict path consistency are told and left out.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np

import palaestra as pl

CARD = pl.Card(
    title="Systematic relational reasoning of large reasoning models",
    paper="arXiv:2503.23487",
    claim="Reasoning models compose relations along one path better than language models without reasoning; where "
    "several paths have to be combined both fail, and answer as a single path allows.",
    source="abstracts of both versions; the guesses and the sampling of problems as the catalogue has them",
    size=pl.Size(
        setting="open and closed language and reasoning models on STaR: RCC-8 and the interval algebra, zero-shot, "
        "with examples and fine-tuned",
    ),
    task="relations",
    needs=pl.needs.Requirements(
        columns=(
            pl.needs.NeededColumn(
                "prompt",
                "text",
                ("0 b 1, 1 m 2: 0 ? 2", "0 d 1, 1 b 2: 0 ? 2", "0 o 1, 1 di 2, 0 b 2: 0 ? 2"),
                "what the model is asked",
            ),
            pl.needs.NeededColumn("answer", "text", ("b", "b", "b"), "the relation"),
            pl.needs.NeededColumn(
                "edges",
                "any",
                (
                    [[0, "b", 1], [1, "m", 2]],
                    [[0, "d", 1], [1, "b", 2]],
                    [[0, "o", 1], [1, "di", 2], [0, "b", 2]],
                ),
                "the graph, as [from, relation, to]",
            ),
            pl.needs.NeededColumn(
                "query", "any", ([0, 2], [0, 2], [0, 2]), "the pair whose relation is asked for"
            ),
        ),
        models=(replace(pl.studies.BASE, otherwise="the model is measured alone"),),
        shows="moved",
        off={"base": "policy"},
        own={"base": "tiny-agent", "problems": 2, "samples": 1},
    ),
    use="It tells whether a model that reasons does so step by step; a model that never saw the names of the "
    "relations needs the table in the prompt.",
    lacks=(
        "The STaR problems themselves are not shipped: bring them with --data.",
        "Fine-tuning on small k and b is training: palaestra train sft --task 'relations(k=2)', and study what it "
        "made.",
        "Relations have their usual short names or single letters, where the paper writes whole numbers.",
    ),
    grade="A",
)  # fmt: skip


@pl.stage
class SystematicReasoning:
    """The study; see the module.

    Args:
        base: the model before training; "" = what the run of the model began with, or none.
        calculus: of problems of a user.
        ks, bs: lengths and numbers of paths of the problems that are made.
        tasks: held-out problems of each cell; of a user's, of all.
        n: answers to each.
        temperature: of the answers; 0 = greedy.
    """

    base: str = ""
    calculus: str = "interval"
    ks: tuple[int, ...] = (2, 3, 4, 6)
    bs: tuple[int, ...] = (1, 2, 3)
    tasks: int = 48
    n: int = 1
    temperature: float = 0.0
    question: ClassVar[str] = "How long a path, and how many paths, can the model reason along?"
    check_up: ClassVar[bool] = False

    def __post_init__(self) -> None:
        pl.check_bounds("problems", self.tasks, least=1)
        pl.check_bounds("samples", self.n, least=1)
        if self.calculus not in ("interval", "rcc8"):
            raise pl.UserError(f"calculus={self.calculus}: it is interval or rcc8")
        if not self.ks or not self.bs:
            raise pl.UserError("ks and bs name at least one length and one number of paths")

    async def run(self, ctx: pl.Context) -> pl.Result:
        names = ["policy", *(["base"] if bring_base(ctx, self.base) else [])]
        tasks = ctx.bench.tasks
        power = pl.studies.tell_power(ctx, self.tasks)
        if isinstance(tasks, pl.toys.Relations):
            cells = {(k, b): replace(tasks, k=k, b=b) for b in self.bs for k in self.ks}
            name = tasks.calculus
        else:
            cells, name = {(0, 0): tasks}, self.calculus
        asked: list[AskedRelation] = []
        for (k, b), source in cells.items():
            there = ctx.with_bench(replace(ctx.bench, tasks=source))
            items = {
                model: await pl.studies.answers(
                    there,
                    model,
                    self.tasks,
                    self.n,
                    temperature=self.temperature,
                    draw=f"k={k} b={b}",
                )
                for model in names
            }
            labels = source.labels if isinstance(source, pl.toys.Relations) else None
            asked += [
                read_item(there, name, i, {m: items[m][at] for m in names}, labels)
                for at, i in enumerate(x["problem"] for x in items["policy"])
            ]
        good = [x for x in asked if x.consistent]
        if wrong := len(asked) - len(good):
            ctx.say(
                f"{wrong} of {len(asked)} problems contradict path consistency, and are left out"
            )
        if not good:
            raise pl.UserError(
                f"no problem has an answer that follows from its edges in the calculus {name}; calculus=rcc8 or "
                "interval names the other one"
            )
        answers = f"{self.n} to each of {len(good)} problems at temperature {self.temperature:g}"
        protocol = {"calculus": name, "answers": answers, "power": power}
        if wrong:
            protocol["left out"] = f"{wrong} problems that contradict path consistency"
        whole = report(good, names)
        return pl.studies.publish(ctx, replace(whole, question=self.question, protocol=protocol))


def bring_base(ctx: Any, base: str) -> bool:
    """Whether there is a model before training to compare with, which is added to the context."""
    if "base" not in ctx.models and (base or pl.studies.start_of(ctx.model("policy").name)):
        pl.studies.bring_models(ctx, base)
    return "base" in ctx.models


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


# ---- what the answers show


def guesses(some: Sequence[AskedRelation]) -> dict[str, float]:
    """How often guesses are right in a cell."""
    golds = [x.gold for x in some]
    inside = [1 / len(x.sets[0]) if x.gold in x.sets[0] else 0.0 for x in some]
    return {
        "chance": 1 / some[0].relations,
        "most frequent": max(golds.count(g) for g in golds) / len(golds),
        "shortest path": float(np.mean(inside)),
    }


def best_guess(b: int, some: Sequence[AskedRelation]) -> float:
    """The best of the guesses that need no composition of the whole graph: along one path the shortest
    path is the whole graph.
    """
    return max(v for k, v in guesses(some).items() if b > 1 or k != "shortest path")


def cells_of(asked: Sequence[AskedRelation]) -> dict[tuple[int, int], list[AskedRelation]]:
    """By b and k, in order."""
    cells: dict[tuple[int, int], list[AskedRelation]] = {}
    for x in sorted(asked, key=lambda x: (x.b, x.k)):
        cells.setdefault((x.b, x.k), []).append(x)
    return cells


def share(some: Sequence[AskedRelation], model: str) -> pl.stats.Interval:
    return pl.stats.bounded_interval([x.right[model] for x in some])


def boundary(cells: Mapping[tuple[int, int], Sequence[AskedRelation]], b: int, model: str) -> int:
    """The greatest k up to which the model is above the best guess; 0 = at no k."""
    reached = 0
    for k in sorted(k for each, k in cells if each == b):
        if share(cells[b, k], model).low <= best_guess(b, cells[b, k]):
            break
        reached = k
    return reached


def shallow(asked: Sequence[AskedRelation], model: str) -> tuple[int, int]:
    """Of wrong answers that name a relation where b > 1: how many one path alone allows, and all."""
    wrong = [
        (label, x.sets)
        for x in asked
        if x.b > 1
        for label in x.said[model]
        if label is not None and label != x.gold
    ]
    return sum(any(label in s for s in sets) for label, sets in wrong), len(wrong)


def report(asked: Sequence[AskedRelation], names: Sequence[str]) -> pl.studies.StudyReport:
    """What the answers show of one model ("policy") or of two (and "base")."""
    cells = cells_of(asked)
    several = sorted({b for b, _ in cells})
    reach = {(m, b): boundary(cells, b, m) for m in names for b in several}
    unread = [label is None for x in asked for label in x.said["policy"]]
    inside, wrong = shallow(asked, "policy")
    numbers: dict[str, float | pl.stats.Interval] = {
        **{f"boundary_b{b}": reach["policy", b] for b in several},
        **{f"right_b{b}_k{k}": share(x, "policy") for (b, k), x in cells.items()},
        "unread": float(np.mean(unread)) if unread else 0.0,
        **({"shallow": inside / wrong} if wrong else {}),
    }
    findings = [tell_reach(cells, reach, several)]
    if wrong:
        findings.append(
            f"Of {wrong} wrong answers to problems of several paths, {inside} are allowed by one path alone."
        )
    if np.mean(unread) > 0:
        findings.append(
            f"{100 * np.mean(unread):.0f}% of the answers name no relation, and are wrong."
        )
    if "base" in names:
        before, after = ([x.right[m] for x in asked] for m in ("base", "policy"))
        more = pl.stats.paired_share_difference(before, after)
        pairs = [
            a != b for x in asked for a, b in zip(x.texts["base"], x.texts["policy"], strict=False)
        ]
        numbers |= {"moved": float(np.mean(pairs)), "gain": more}
        findings.insert(
            1,
            f"Over all problems the model is right {pl.studies.tell_interval(more, signed=True)} more often "
            "than the start.",
        )
    return pl.studies.StudyReport(
        study="systematic-reasoning",
        question="",
        findings=findings,
        numbers=numbers,
        protocol={},
        tables=[cells_table(cells, names)],
        charts=[chart(cells, several)],
        items=[x.json() for x in asked],
    )


def tell_reach(
    cells: Mapping[tuple[int, int], Sequence[AskedRelation]],
    reach: Mapping[tuple[str, int], int],
    several: Sequence[int],
) -> str:
    """The answer: how far the model is above guesses, for each number of paths."""
    parts = list[str]()
    for b in several:
        ks = [k for each, k in cells if each == b]
        k = reach["policy", b]
        paths = "one path" if b == 1 else f"{b} paths"
        low = min(ks)
        seen = share(cells[b, k or low], "policy").mean
        guess = best_guess(b, cells[b, k or low])
        far = (
            f"up to k = {k}" + (", the longest measured" if k == max(ks) else "")
            if k
            else "at no length"
        )
        parts.append(
            f"along {paths} {far} ({100 * seen:.0f}% at k = {k or low}, a guess {100 * guess:.0f}%)"
        )
    return f"The model is above guessing {'; '.join(parts)}."


def cells_table(
    cells: Mapping[tuple[int, int], Sequence[AskedRelation]], names: Sequence[str]
) -> pl.studies.StudyTable:
    """Accuracy by cell, beside the guesses."""
    model_names = {"policy": "model", "base": "start"}
    rows = [
        (
            str(b),
            str(k),
            str(len(some)),
            *(pl.studies.tell_interval(share(some, m)) for m in names),
            *(f"{100 * v:.1f}%" for v in guesses(some).values()),
        )
        for (b, k), some in cells.items()
    ]
    columns = ("paths b", "length k", "problems", *(model_names[m] for m in names))
    return pl.studies.StudyTable(
        "Right answers by hardness",
        (*columns, "chance", "most frequent label", "shortest path alone"),
        rows,
        "Along one path the shortest path is the whole problem.",
    )


def chart(
    cells: Mapping[tuple[int, int], Sequence[AskedRelation]], several: Sequence[int]
) -> pl.studies.StudyChart:
    """Right answers over k, a line for each b, and the best guess of each."""
    lines = list[pl.studies.StudyLine]()
    for b in several:
        ks = [k for each, k in cells if each == b]
        points = [share(cells[b, k], "policy") for k in ks]
        lines.append(
            pl.studies.StudyLine(
                f"b = {b}",
                ks,
                [p.mean for p in points],
                [p.low for p in points],
                [p.high for p in points],
            )
        )
        lines.append(
            pl.studies.StudyLine(f"guess, b = {b}", ks, [best_guess(b, cells[b, k]) for k in ks])
        )
    return pl.studies.StudyChart(
        "Right answers by hardness", "relations of a path", "right answers", lines, share=True
    )


def build(
    base: str = "",
    calculus: str = "interval",
    ks: tuple[int, ...] = (2, 3, 4, 6),
    bs: tuple[int, ...] = (1, 2, 3),
    problems: int = 48,
    samples: int = 1,
    temperature: float = 0.0,
) -> SystematicReasoning:
    """`base` is the model before training, "" = what the run of the model began with, if that is known.
    `samples` answers to `problems` held-out problems of each length `ks` and number of paths `bs`; or to so
    many problems of --data, of a `calculus` that is interval or rcc8."""
    return SystematicReasoning(base, calculus, ks, bs, problems, samples, temperature)


SHORT = "relations(letters=true,k={k},b={b})"


def embedded(steps: int = 120, problems: int = 32) -> pl.Pipeline:
    """The built-in model imitates worked compositions for `steps` steps, along one path of 2 or 3
    relations and two of 2, and is measured on longer and on more paths."""
    taught = pl.vary(
        pl.recipe("sft"),
        optimiser=pl.AdamW(lr=2e-3, warmup=5),
        schedule=pl.Schedule(prompts=48, steps=steps),
    )
    seen = "+".join(SHORT.format(k=k, b=b) for k, b in ((2, 1), (3, 1), (2, 2)))
    return pl.Pipeline(
        parts={
            "taught": pl.warm(taught, task=seen),
            "study": pl.Part(
                SystematicReasoning("tiny", ks=(2, 3, 4), bs=(1, 2), tasks=problems),
                model=pl.Output("taught"),
                task=SHORT.format(k=2, b=1),
            ),
        }
    )
