"""Fills the tables, the conclusions and the picture of docs/contexts.md: python -m benchmarks.contexts.page"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.cells import fill_page, trial_note
from benchmarks.contexts.study import CONTEXTS, DECLARED
from benchmarks.paired import gains_over, of_values, verdicts
from palaestra.markdown import table
from palaestra.view.drawing import INK, LINE, MUTED, PALETTE, svg_text
from tools.pages.figure import paper

HERE = Path(__file__).parent
PAGE, PICTURE = Path("docs/contexts.md"), Path("docs/contexts.svg")
ARMS: list[str] = DECLARED["arms"]
BASE, UNIT = "truncation", "seeds"


def column(results: Mapping[str, Any], arm: str, of: str) -> dict[int, float]:
    """A measure of an arm by seed."""
    each = {tuple(at.split("/")): cell for at, cell in results["cells"].items()}
    return {
        int(n): cell[of]
        for (name, n), cell in sorted(each.items())
        if name == arm and int(n) in DECLARED["seeds"]
    }


def judged(gains: Mapping[str, Sequence[float]]) -> dict[str, str]:
    return verdicts(gains, len(DECLARED["seeds"]), "better", "worse", DECLARED["matters"], UNIT)


def over_base(results: Mapping[str, Any]) -> dict[str, list[float]]:
    base = column(results, BASE, "right")
    return {a: gains_over(column(results, a, "right"), base) for a in ARMS if a != BASE}


def over_start(results: Mapping[str, Any]) -> dict[str, list[float]]:
    return {a: gains_over(*(column(results, a, of) for of in ("right", "start"))) for a in ARMS}


def arms_table(results: Mapping[str, Any]) -> str:
    beside, above = over_base(results), over_start(results)
    said_beside, said_above = judged(beside), judged(above)
    rows = list[Sequence[str]]()
    for arm in ARMS:
        if not above[arm]:
            rows.append((arm, *["not run"] * 8))
            continue
        value = lambda of, arm=arm: of_values(list(column(results, arm, of).values()))
        rows.append((
            arm, value("start"), value("right"), f"{of_values(above[arm], '+')}, {said_above[arm]}",
            "" if arm == BASE else f"{of_values(beside[arm], '+')}, {said_beside[arm]}",
            value("late"), value("truncated"), value("beyond"), f"{np.mean([*column(results, arm, 'steps').values()]):.0f}",
        ))  # fmt: skip
    head = ("arm", "start, greedy", "greedy", "greedy less the start", f"greedy less {BASE}")
    return table(rows, *head, "late, sampled", "late, cut", "late, ended beyond the limit", "steps")


def conclusions(results: Mapping[str, Any]) -> str:
    whole = len(ARMS) * len(DECLARED["seeds"])
    run = sum(len(column(results, arm, "right")) for arm in ARMS)
    lines = trial_note(run, whole)
    for says, gains in ((BASE, over_base(results)), ("the start", over_start(results))):
        said = judged(gains)
        told = [f"{a} {np.mean(x):+.3f} ({said[a]})" for a, x in gains.items() if x]
        lines.append(f"- **Compared with {says}:** {', '.join(told) or 'not run'}.")
    return "\n".join(lines)


def picture(results: Mapping[str, Any]) -> str:
    """Right greedy answers of each arm: its start and after training, a point a seed."""
    width, left, row, top, wide = 680, 130, 44, 40, 480
    height = top + row * len(CONTEXTS) + 40
    x = lambda v: left + wide * v
    parts = [
        *paper(height, width),
        svg_text(left, 18, "share of right greedy answers: start", INK),
        svg_text(left + 230, 18, "trained", PALETTE[0], weight="bold"),
    ]
    for v in (0.0, 0.5, 1.0):
        parts.append(f"<path d='M{x(v):.0f} {top}V{height - 30}' stroke='{LINE}'/>")
        parts.append(svg_text(x(v), height - 14, f"{v:g}", MUTED, "middle"))
    for n, arm in enumerate(ARMS):
        y = top + row * n + row / 2
        parts.append(svg_text(left - 10, y + 4, arm, INK, "end"))
        for of, colour, lift in (("start", MUTED, -6), ("right", PALETTE[0], 6)):
            for value in column(results, arm, of).values():
                parts.append(
                    f"<circle cx='{x(value):.1f}' cy='{y + lift:.1f}' r='3.5' fill='{colour}'/>"
                )
    return "\n".join([*parts, "</svg>\n"])


def made_parts(results: Mapping[str, Any]) -> dict[str, str]:
    return {"conclusions": conclusions(results), "arms": arms_table(results)}


def main() -> None:
    fill_page(HERE, PAGE, made_parts, PICTURE, picture)


if __name__ == "__main__":
    main()
