"""The findings of the study: its answer, tables and chart."""

from collections.abc import Mapping, Sequence

import numpy as np

import palaestra as pl
from palaestra.recipes.analysis.systematic_reasoning.relations import AskedRelation


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
