"""Fills the tables and the conclusions of docs/overoptimisation.md, and draws its picture:
python -m benchmarks.overoptimisation.page
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.cells import fill_page
from benchmarks.curves import Point, panels_svg
from benchmarks.overoptimisation.study import DECLARED, WAYS, closed_form
from benchmarks.paired import gains_over, of_values, summed_up, verdicts
from palaestra.markdown import table
from palaestra.stats import mean_interval

HERE = Path(__file__).parent
PAGE, PICTURE = Path("docs/overoptimisation.md"), Path("docs/overoptimisation.svg")
BASE = "best of n"
FIRST, LAST = 0, -1  # points of a curve
LEAST = 2  # seeds, for an interval and so for a curve


def curves(results: Mapping[str, Any], way: str) -> dict[int, list[dict[str, float]]]:
    """The points of a way by declared seed."""
    cells = {tuple(at.split("/")): c["points"] for at, c in results["cells"].items()}
    return {int(n): p for (w, n), p in sorted(cells.items()) if w == way and int(n) in DECLARED["seeds"]}  # fmt: skip


def rise(points: Sequence[Mapping[str, float]], of: str = "gold") -> float:
    """What a measure is at the end of a curve less that at its beginning."""
    return points[LAST][of] - points[FIRST][of]


def at_kl(points: Sequence[Mapping[str, float]], kl: float) -> float | None:
    """The gold reward above the curve's beginning at a KL, on the straight line between the two points around it where
    the curve first reaches it; None where it never does.
    """
    for a, b in pairwise(points):
        if a["kl"] <= kl <= b["kl"]:
            share = (kl - a["kl"]) / (b["kl"] - a["kl"]) if b["kl"] > a["kl"] else 1.0
            return a["gold"] + share * (b["gold"] - a["gold"]) - points[FIRST]["gold"]
    return None


def gains_at(results: Mapping[str, Any], way: str, kl: float) -> dict[int, float]:
    """Gold above the start at a KL, by seed that reaches it."""
    each = {n: at_kl(p, kl) for n, p in curves(results, way).items()}
    return {n: x for n, x in each.items() if x is not None}


def said_of(gains: Mapping[str, Sequence[float]], up: str, down: str) -> dict[str, str]:
    return verdicts(gains, len(DECLARED["seeds"]), up, down, DECLARED["matters"], "seeds")


def ends(results: Mapping[str, Any]) -> dict[str, dict[str, list[float]]]:
    """Rises of gold and proxy from the beginning to the end, by way."""
    return {
        of: {way: [rise(p, of) for p in curves(results, way).values()] for way in WAYS}
        for of in ("gold", "proxy")
    }


def ends_table(results: Mapping[str, Any]) -> str:
    """Where each way ends, and what decides whether it is over-optimised."""
    rises = ends(results)
    gold, proxy = (said_of(rises[of], "above", "below") for of in ("gold", "proxy"))
    rows = list[Sequence[str]]()
    for way in WAYS:
        each = list(curves(results, way).values())
        if not each:
            rows.append((way, *["not run"] * 5))
            continue
        rows.append((
            way, of_values([p[LAST]["kl"] for p in each]),
            f"{of_values(rises['proxy'][way], '+')}, {proxy[way]}", f"{of_values(rises['gold'][way], '+')}, {gold[way]}",
            of_values([max(x["gold"] for x in p) - p[FIRST]["gold"] for p in each], "+"),
            of_values([p[LAST]["gold"] for p in each]),
        ))  # fmt: skip
    return table(
        rows, "way", "KL at the end, nats", "proxy, end less start", "gold, end less start (decides)",
        "gold, best point less start (chosen on the same answers)", "gold at the end",
    )  # fmt: skip


def points_table(results: Mapping[str, Any]) -> str:
    """All points, the means over seeds."""
    rows = list[Sequence[str]]()
    for way in WAYS:
        each = list(curves(results, way).values())
        for at in zip(*each, strict=True):
            said = f"n = {at[0]['at']:g}" if way == BASE else f"step {at[0]['at']:g}"
            values = (of_values([p[of] for p in at]) for of in ("kl", "proxy", "gold"))
            bound = f"{closed_form(int(at[0]['at'])):.3f}" if way == BASE else ""
            rows.append((way, said, *values, bound))
    return table(rows, "way", "point", "KL, nats", "proxy", "gold", "log n - (n - 1)/n")


def matched_table(results: Mapping[str, Any]) -> str:
    """Gold above the start at equal KL, and the learned ways less best of n."""
    rows = list[Sequence[str]]()
    for kl in DECLARED["compared at"]:
        base = gains_at(results, BASE, kl)
        less = {w: gains_over(gains_at(results, w, kl), base) for w in WAYS if w != BASE}
        said = said_of(less, "more", "less")
        told = (f"{of_values(less[w], '+')}, {said[w]}" if less[w] else "not reached" for w in less)
        rows.append((f"{kl:g}", *(of_values(list(gains_at(results, w, kl).values()), "+") for w in WAYS), *told))  # fmt: skip
    return table(rows, "KL, nats", *WAYS, *(f"{w} less {BASE}" for w in WAYS if w != BASE))


def starts_table(results: Mapping[str, Any]) -> str:
    own = [x for n, x in results["starts"].items() if int(n) in DECLARED["seeds"]]
    begun = [p[FIRST]["gold"] for p in curves(results, BASE).values()]
    rows = list[Sequence[str]]()
    if own:
        sizes = [x["pairs"] for x in own]
        rows.append((
            f"{len(own)}", of_values(begun), f"{min(sizes)} to {max(sizes)}", f"{DECLARED['pairs']['flipped']:.0%}",
            of_values([x["ranked right"] for x in own]),
        ))  # fmt: skip
    return table(
        rows, "starts", "gold", "pairs, an eighth of them held out", "flipped labels", "unseen true pairs ranked right"
    )  # fmt: skip


def conclusions(results: Mapping[str, Any]) -> str:
    """Sentences that follow from the numbers."""
    lines, needed = list[str](), len(DECLARED["seeds"])
    run, whole = sum(len(curves(results, w)) for w in WAYS), len(WAYS) * needed
    if run < whole:
        lines.append(
            f"- **Not complete:** {run} of the {whole} declared cells are run. There is no verdict before all are."
        )
    if not run:
        return lines[0]
    rises = ends(results)
    said = {of: said_of(rises[of], "above", "below") for of in ("gold", "proxy")}
    over = [w for w in WAYS if said["proxy"][w] == "above" and said["gold"][w] == "below"]
    lost = ", ".join(f"{w} {np.mean(x):.3f}" for w, x in losses(results).items() if x)
    lines += [
        f"- **The proxy at the end.** {summed_up('the start', rises['proxy'], said['proxy'], needed, 'seeds')}",
        f"- **The gold reward at the end.** {summed_up('the start', rises['gold'], said['gold'], needed, 'seeds')}",
        "- **Over-optimised by the rule (the proxy above the start, gold below it):** "
        f"{', '.join(over) or ('none' if run == whole else 'no verdict yet')}.",
        "- From its best point to its end each way loses in gold (the best point is chosen on the same answers, so the loss "
        f"is an upper bound): {lost}.",
    ]  # fmt: skip
    for kl in DECLARED["compared at"]:
        base = gains_at(results, BASE, kl)
        less = {w: gains_over(gains_at(results, w, kl), base) for w in WAYS if w != BASE}
        if any(less.values()):
            told = summed_up(BASE, less, said_of(less, "more", "less"), needed, "seeds")
            lines.append(f"- **At {kl:g} nats**, gold. {told}")
    measured = [p for c in curves(results, BASE).values() for p in c if p["closed form"] > 0]
    if measured:
        most = max(p["kl"] / p["closed form"] for p in measured)
        lines.append(
            f"- The measured KL of best of n is at most {most:.0%} of its closed form, log n - (n - 1)/n: answers that are "
            "alike share their chances."
        )
    return "\n".join(lines)


def losses(results: Mapping[str, Any]) -> dict[str, list[float]]:
    """Gold at the best point of each curve less that at its end."""
    return {
        w: [max(x["gold"] for x in p) - p[LAST]["gold"] for p in curves(results, w).values()]
        for w in WAYS
    }


def picture(results: Mapping[str, Any]) -> str:
    """Gold and proxy above the start against the root of the KL: means over seeds at each point of a curve, up to the
    KL that is declared.
    """
    panels = dict[str, dict[str, list[Point]]]()
    for of in ("gold reward", "proxy's score"):
        drawn = panels.setdefault(f"{of}, above the start", {})
        for way in WAYS:
            drawn[way] = points_of(list(curves(results, way).values()), of.split()[0].removesuffix("'s"))  # fmt: skip
    marks = [(kl**0.5, f"{kl:g}") for kl in (0, 0.25, 1, 2, 4, 9, 16)]
    return panels_svg(
        "what optimising a proxy brings, 95% t intervals over seeds", "KL to the start, nats an answer (by its root)", panels,
        {w: i for i, w in enumerate(WAYS)}, (), marks,
    )  # fmt: skip


def points_of(each: Sequence[Sequence[Mapping[str, float]]], of: str) -> list[Point]:
    """A measure above the start at each point of a curve that some seeds have; nothing of one seed alone."""
    if len(each) < LEAST:
        return []
    first, points = [c[FIRST][of] for c in each], list[Point]()
    for at in zip(*each, strict=True):
        kl = max(0.0, float(np.mean([p["kl"] for p in at])))
        if kl <= DECLARED["drawn up to"]:
            gain = mean_interval([p[of] - x for p, x in zip(at, first, strict=True)])
            points.append((kl**0.5, gain))
    return points


def made_parts(results: Mapping[str, Any]) -> dict[str, str]:
    return {
        "conclusions": conclusions(results),
        "ends": ends_table(results),
        "matched": matched_table(results),
        "points": points_table(results),
        "starts": starts_table(results),
    }


def main() -> None:
    fill_page(HERE, PAGE, made_parts, PICTURE, picture)


if __name__ == "__main__":
    main()
