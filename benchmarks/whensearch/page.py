"""Fills the tables, the conclusions and the picture of docs/when-to-search.md: python -m benchmarks.whensearch.page"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.cells import fill_page, trial_note
from benchmarks.paired import gains_over, of_values, summed_up, verdicts
from benchmarks.whensearch.facts import KINDS
from benchmarks.whensearch.study import DECLARED
from palaestra.markdown import table
from palaestra.view.drawing import INK, LINE, MUTED, PALETTE, PAPER, svg_text

HERE = Path(__file__).parent
PAGE, PICTURE = Path("docs/when-to-search.md"), Path("docs/when-to-search.svg")
ARMS: list[str] = DECLARED["arms"]
BASE, UNIT = "outcome", "seeds"
NO_CELL = "No cell was run yet."  # in place of a table without a number
NOTHING = "none"  # where no answer was of this kind


def cells(results: Mapping[str, Any], arm: str, part: str = "cells") -> dict[int, Any]:
    """The cells of an arm, or the starts of a form, by declared seed."""
    each = {tuple(at.split("/")): x for at, x in results[part].items()}
    return {
        int(n): x
        for (name, n), x in sorted(each.items())
        if name == arm and int(n) in DECLARED["seeds"]
    }


def shares(found: Mapping[int, Any], exam: str, kind: str, of: str) -> dict[int, float]:
    """A measure of a kind of question by seed, where it has a value."""
    values = {seed: x.get("exams", x)[exam][kind][of] for seed, x in found.items()}
    return {seed: v for seed, v in values.items() if v is not None}


def of_both(results: Mapping[str, Any], arm: str, exam: str, of: str) -> dict[int, float]:
    """The mean over both kinds, by seed."""
    one, other = (shares(cells(results, arm), exam, kind, of) for kind in KINDS)
    return {seed: (v + other[seed]) / 2 for seed, v in one.items()}


def at_calls(curve: Mapping[str, Sequence[float]], limit: float) -> float:
    """Right sampled answers in the last `late` steps of training before more than `limit` searches were made."""
    within = [i for i, calls in enumerate(curve["calls"]) if calls <= limit] or [0]
    late = within[-DECLARED["late"] :]
    return float(np.mean([curve[f"right {kind}"][i] for kind in KINDS for i in late]))


def at_equal_calls(results: Mapping[str, Any], arm: str) -> dict[int, float]:
    return {n: at_calls(x["curve"], DECLARED["calls"]) for n, x in cells(results, arm).items()}


# ---- what decides


def judged(gains: Mapping[str, Sequence[float]], up: str, down: str) -> dict[str, str]:
    return verdicts(gains, len(DECLARED["seeds"]), up, down, DECLARED["matters"], UNIT)


def less_base(values: Mapping[str, Mapping[int, float]]) -> dict[str, list[float]]:
    return {a: gains_over(x, values[BASE]) for a, x in values.items() if a != BASE}


def right_less_base(results: Mapping[str, Any]) -> dict[str, list[float]]:
    return less_base({a: of_both(results, a, "intact", "right") for a in ARMS})


def calls_less_base(results: Mapping[str, Any]) -> dict[str, list[float]]:
    return less_base({a: of_both(results, a, "sampled", "calls") for a in ARMS})


def equal_calls_less_base(results: Mapping[str, Any]) -> dict[str, list[float]]:
    return less_base({a: at_equal_calls(results, a) for a in ARMS})


def by_need(results: Mapping[str, Any]) -> dict[str, list[float]]:
    """Answers with a search: their share of unknown facts less that of known ones."""
    return {
        a: gains_over(*(shares(cells(results, a), "sampled", kind, "searched") for kind in KINDS))
        for a in ARMS
    }


# ---- tables


def listed(values: Mapping[int, float]) -> str:
    return of_values(list(values.values())) if values else NOTHING


def rows_of(results: Mapping[str, Any], n: int, row: Any) -> list[Sequence[str]]:
    """A row of `n` columns an arm, where it was run."""
    return [(a, *(row(a) if cells(results, a) else ["not run"] * n)) for a in ARMS]


def right_table(results: Mapping[str, Any]) -> str:
    gains = right_less_base(results)
    said = judged(gains, "better", "worse")

    def row(arm: str) -> list[str]:
        own = cells(results, arm)
        beside = f"{of_values(gains[arm], '+')}, {said[arm]}" if arm in gains else ""
        return [*(listed(shares(own, "intact", k, "right")) for k in KINDS[::-1]), beside]

    return table(rows_of(results, 3, row), "arm", "known", "unknown", f"both, less {BASE}")


def search_table(results: Mapping[str, Any]) -> str:
    need, fewer = by_need(results), calls_less_base(results)
    said = judged(need, "by need", "against need"), judged(fewer, "more", "fewer")

    def row(arm: str) -> list[str]:
        own = cells(results, arm)
        beside = f"{of_values(fewer[arm], '+')}, {said[1][arm]}" if arm in fewer else ""
        return [
            *(listed(shares(own, "sampled", k, "searched")) for k in KINDS[::-1]),
            f"{of_values(need[arm], '+')}, {said[0][arm]}",
            beside,
        ]

    head = ("arm", "known", "unknown", "unknown less known", f"calls an answer, less {BASE}")
    return table(rows_of(results, 4, row), *head)


def calls_table(results: Mapping[str, Any]) -> str:
    gains = equal_calls_less_base(results)
    said = judged(gains, "better", "worse")

    def row(arm: str) -> list[str]:
        own = cells(results, arm)
        made = {n: x["curve"]["calls"][-1] for n, x in own.items()}
        steps = {n: float(len(x["curve"]["calls"])) for n, x in own.items()}
        beside = f"{of_values(gains[arm], '+')}, {said[arm]}" if arm in gains else ""
        means = [f"{np.mean([*v.values()]):,.0f}" for v in (made, steps)]
        return [listed(at_equal_calls(results, arm)), beside, *means]

    head = (
        f"right within {DECLARED['calls']:,} searches",
        f"less {BASE}",
        "searches in all",
        "steps",
    )
    return table(rows_of(results, 4, row), "arm", *head)


def controls_table(results: Mapping[str, Any]) -> str:
    row = lambda arm: [
        listed(shares(cells(results, arm), index, kind, "right"))
        for index in ("intact", "shuffled", "broken")
        for kind in KINDS[::-1]
    ]
    head = [f"{index}, {k}" for index in ("intact", "shuffled", "broken") for k in KINDS[::-1]]
    return table(rows_of(results, 6, row), "arm", *head)


def starts_table(results: Mapping[str, Any]) -> str:
    rows = list[Sequence[str]]()
    for form in ("plain", "draft"):
        own = cells(results, form, "starts")
        for kind in KINDS[::-1] if own else ():
            of = ("searched", "right at once", "right by search", "right")
            values = [listed(shares(own, "sampled", kind, x)) for x in of]
            rows.append((form, kind, *values, listed(shares(own, "greedy", kind, "right"))))
    head = ("searches", "right at once", "right by search", "right, sampled", "right, greedy")
    return table(rows, "start", "facts", *head) if rows else "No start was made yet."


# ---- in words


def conclusions(results: Mapping[str, Any]) -> str:
    needed = len(DECLARED["seeds"])
    run, whole = sum(len(cells(results, arm)) for arm in ARMS), len(ARMS) * needed
    lines = trial_note(run, whole)
    refused = [at for at, x in results["starts"].items() if x["refused"]]
    if refused:
        why = "; ".join(f"{at} {results['starts'][at]['refused']}" for at in refused)
        lines.append(f"- **Starts that were refused, whose cells are not run:** {why}.")
    if not run:
        return "\n".join(lines)
    for says, gains, words in (
        ("Right answers at equal tokens", right_less_base(results), ("better", "worse")),
        ("Right answers at equal searches", equal_calls_less_base(results), ("better", "worse")),
        ("Searches an answer", calls_less_base(results), ("more", "fewer")),
    ):
        said = summed_up(BASE, gains, judged(gains, *words), needed, UNIT)
        lines.append(f"- **{says}.** {said}")
    need = by_need(results)
    said = summed_up("known facts", need, judged(need, "by need", "against need"), needed, UNIT)
    lines.append(f"- **Answers to unknown facts that search.** {said}")
    return "\n".join(lines)


def smoothed(results: Mapping[str, Any], arm: str) -> list[tuple[float, float]]:
    """Searches made so far, and right answers: means over seeds, each of `late` steps."""
    curves, width = [x["curve"] for x in cells(results, arm).values()], DECLARED["late"]
    steps = min((len(c["calls"]) for c in curves), default=0)
    right = lambda c, i: np.mean([c[f"right {k}"][i : i + width] for k in KINDS])
    return [
        (
            float(np.mean([c["calls"][i + width - 1] for c in curves])),
            float(np.mean([right(c, i) for c in curves])),
        )
        for i in range(max(0, steps - width + 1))
    ]


def picture(results: Mapping[str, Any]) -> str:
    """Right sampled answers in training against the searches that were made for them, a line an arm."""
    width, height, left, top, wide, high = 680, 340, 46, 60, 600, 230
    lines = {arm: smoothed(results, arm) for arm in ARMS}
    most = max((x for line in lines.values() for x, _ in line), default=1.0) or 1.0
    at = lambda calls, right: (left + wide * calls / most, top + high * (1 - right))
    parts = [
        f"<svg xmlns='http://www.w3.org/2000/svg' viewBox='0 0 {width} {height}' width='{width}' "
        f"height='{height}' font-family='DejaVu Sans, Verdana, sans-serif' font-size='11'>",
        f"<rect width='{width}' height='{height}' fill='{PAPER}'/>",
        svg_text(left, 18, "right sampled answers, by searches made in training so far", INK),
    ]
    for n, arm in enumerate(ARMS):
        parts.append(svg_text(left + 125 * n, 38, arm, PALETTE[n], weight="bold"))
    for v in (0.0, 0.5, 1.0):
        _, y = at(0, v)
        parts.append(f"<path d='M{left} {y:.1f}H{left + wide}' stroke='{LINE}'/>")
        parts.append(svg_text(left - 6, y + 4, f"{v:g}", MUTED, "end"))
        parts.append(
            svg_text(left + wide * v, top + high + 18, f"{most * v:,.0f}", MUTED, "middle")
        )
    for n, arm in enumerate(ARMS):
        points = " ".join(f"{x:.1f},{y:.1f}" for x, y in (at(*p) for p in lines[arm]))
        if points:
            style = f"fill='none' stroke='{PALETTE[n]}' stroke-width='2.2'"
            parts.append(f"<polyline points='{points}' {style}/>")
    return "\n".join([*parts, "</svg>\n"])


def made_parts(results: Mapping[str, Any]) -> dict[str, str]:
    if not any(cells(results, arm) for arm in ARMS):
        tables = dict.fromkeys(("right", "searches", "calls", "controls"), NO_CELL)
        return {"conclusions": conclusions(results), **tables, "starts": starts_table(results)}
    return {
        "conclusions": conclusions(results),
        "right": right_table(results),
        "searches": search_table(results),
        "calls": calls_table(results),
        "controls": controls_table(results),
        "starts": starts_table(results),
    }


def main() -> None:
    fill_page(HERE, PAGE, made_parts, PICTURE, picture)


if __name__ == "__main__":
    main()
