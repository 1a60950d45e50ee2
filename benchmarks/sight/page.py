"""Fills the tables and the conclusions of docs/sight.md: python -m benchmarks.sight.page"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from palaestra.markdown import fill_marks, table
from palaestra.stats import Interval, mean_interval, paired_difference

HERE = Path(__file__).parent
PAGE = Path("docs/sight.md")
MATTERS = 0.03
ARMS = ("full", "frozen tower", "picture removed", "picture swapped")
MEASURED = ("with picture", "removed", "swapped")
PAIRS = (
    ("full", "picture removed"),
    ("full", "picture swapped"),
    ("full", "frozen tower"),
    ("frozen tower", "picture removed"),
)


def column(results: Mapping[str, Any], arm: str, of: str, when: str = "after") -> dict[int, float]:
    """A measure of an arm by seed."""
    cells = {tuple(at.split("/")): c for at, c in results["cells"].items()}
    return {int(seed): c[when][of] for (name, seed), c in sorted(cells.items()) if name == arm}


def written(x: Interval, sign: str = "") -> str:
    return (
        f"{x.mean:{sign}.3f} [{x.low:{sign}.3f}, {x.high:{sign}.3f}]"
        if x.n > 1
        else f"{x.mean:{sign}.3f}"
    )


def verdict(gain: Interval, declared: int) -> str:
    if gain.n < declared:
        return f"trial: {gain.n} of {declared} seeds"
    if max(-gain.low, gain.high) < MATTERS:
        return "no difference that matters"
    return "more" if gain.low > 0 else "less" if gain.high < 0 else "not decided"


def paired(one: Mapping[int, float], other: Mapping[int, float]) -> Interval:
    """`one` less `other` over the seeds that both have."""
    seeds = sorted(one.keys() & other.keys())
    return paired_difference([other[s] for s in seeds], [one[s] for s in seeds])


def arms_table(results: Mapping[str, Any], declared: int) -> str:
    """Accuracy after training under each condition, the gain, and the part of it that needs the picture."""
    any_cell = next(iter(results["cells"].values()))
    rows = [("start", *(f"{any_cell['before'][m]:.3f}" for m in MEASURED), "", "", "")]
    for arm in ARMS:
        after = {m: column(results, arm, m) for m in MEASURED}
        if not after["with picture"]:
            rows.append((arm, *["not run"] * 3, "", "", ""))
            continue
        before = {m: column(results, arm, m, "before") for m in MEASURED}
        gain = {m: paired(after[m], before[m]) for m in MEASURED}
        grown = {m: {s: after[m][s] - before[m][s] for s in after[m]} for m in MEASURED}
        benefit = paired(grown["with picture"], grown["removed"])
        rows.append((
            arm, *(written(mean_interval(list(after[m].values()))) for m in MEASURED), written(gain["with picture"], "+"),
            written(benefit, "+"), verdict(benefit, declared),
        ))  # fmt: skip
    head = (
        "arm",
        "with picture",
        "picture removed",
        "picture swapped",
        "gain with picture",
        "of it needs the picture",
        "",
    )
    return table(rows, *head)


def pairs_table(results: Mapping[str, Any], declared: int) -> str:
    rows = list[Sequence[str]]()
    for one, other in PAIRS:
        a, b = (column(results, x, "with picture") for x in (one, other))
        if not (a.keys() & b.keys()):
            continue
        gain = paired(a, b)
        rows.append((f"{one} less {other}", written(gain, "+"), verdict(gain, declared)))
    return table(rows, "accuracy with picture", "difference [95%]", "")


def conclusions(results: Mapping[str, Any], declared: int) -> str:
    """Sentences that follow from the numbers."""
    any_cell = next(iter(results["cells"].values()))["before"]
    lines = [f"- The start answers {any_cell['with picture']:.2f} right with the picture, {any_cell['removed']:.2f} without it "
             f"and {any_cell['swapped']:.2f} with another scene's."]  # fmt: skip
    for arm in ARMS:
        after, before = (column(results, arm, "with picture", w) for w in ("after", "before"))
        blind, blind_before = (column(results, arm, "removed", w) for w in ("after", "before"))
        if after:
            lines.append(
                f"- **{arm}**: {written(paired(after, before), '+')} with the picture and "
                f"{written(paired(blind, blind_before), '+')} without it ({len(after)} of {declared} seeds)."
            )
    return "\n".join(lines)


def main() -> None:
    results = json.loads((HERE / "results.json").read_text())
    declared = len(json.loads((HERE / "declared.json").read_text())["seeds"])
    made = {
        "conclusions": conclusions(results, declared),
        "arms": arms_table(results, declared),
        "pairs": pairs_table(results, declared),
    }
    PAGE.write_text(fill_marks(PAGE.read_text(), made))


if __name__ == "__main__":
    main()
