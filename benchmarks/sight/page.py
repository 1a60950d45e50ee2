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
NEEDLESS = "swapped"  # what a gain that needs the picture is measured against
PAIRS = (
    ("full", "picture removed"),
    ("full", "picture swapped"),
    ("full", "frozen tower"),
    ("frozen tower", "picture removed"),
)


def column(
    results: Mapping[str, Any], start: str, arm: str, of: str, when: str = "after"
) -> dict[int, float]:
    """A measure of an arm by seed."""
    cells = {tuple(at.split("/")): c for at, c in results["cells"].items()}
    return {int(n): c[when][of] for (a, b, n), c in sorted(cells.items()) if (a, b) == (start, arm)}


def begun(results: Mapping[str, Any], start: str, of: str) -> list[float]:
    """A measure of the starts, one of each seed."""
    each = [column(results, start, arm, of, "before") for arm in ARMS]
    return list({seed: x for c in each for seed, x in c.items()}.values())


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


def gain_of(results: Mapping[str, Any], start: str, arm: str, of: str) -> dict[int, float]:
    """What an arm's training adds to a measure, by seed."""
    after, before = (column(results, start, arm, of, when) for when in ("after", "before"))
    return {seed: after[seed] - before[seed] for seed in after}


def arms_table(results: Mapping[str, Any], start: str, declared: int) -> str:
    """Accuracy after training under each condition, the gain, and the part of it that needs the picture."""
    first = {m: begun(results, start, m) for m in MEASURED}
    rows = list[Sequence[str]]()
    if first["removed"]:
        rows.append(("start", *(written(mean_interval(first[m])) for m in MEASURED), "", "", ""))
    for arm in ARMS:
        after = {m: list(column(results, start, arm, m).values()) for m in MEASURED}
        if not after["removed"]:
            rows.append((arm, *["not run"] * 3, "", "", ""))
            continue
        gain = gain_of(results, start, arm, "with picture")
        needs = [paired(gain, gain_of(results, start, arm, m)) for m in ("removed", NEEDLESS)]
        rows.append((
            arm, *(written(mean_interval(after[m])) for m in MEASURED), written(mean_interval(list(gain.values())), "+"),
            *(f"{written(x, '+')}, {verdict(x, declared)}" for x in needs),
        ))  # fmt: skip
    return table(
        rows, "arm", "with picture", "picture removed", "picture swapped", "gain with picture",
        "less the gain without it", "less the gain with another scene's",
    )  # fmt: skip


def pairs_table(results: Mapping[str, Any], starts: Sequence[str], declared: int) -> str:
    """Arms against each other, with the picture."""
    rows = list[Sequence[str]]()
    for one, other in PAIRS:
        told = list[str]()
        for start in starts:
            a, b = (column(results, start, x, "with picture") for x in (one, other))
            gain = paired(a, b) if a.keys() & b.keys() else None
            told.append(f"{written(gain, '+')}, {verdict(gain, declared)}" if gain else "not run")
        rows.append((f"{one} less {other}", *told))
    return table(rows, "accuracy with picture", *(f"{s} start" for s in starts))


def conclusions(results: Mapping[str, Any], starts: Sequence[str], declared: int) -> str:
    """Sentences that follow from the numbers."""
    lines = list[str]()
    for start in starts:
        first = {m: begun(results, start, m) for m in MEASURED}
        if not first["removed"]:
            lines.append(f"- **From the {start} start**: not run.")
            continue
        kept, swapped = (sum(first[m]) / len(first[m]) for m in ("with picture", NEEDLESS))
        told = list[str]()
        for arm in ARMS:
            gain, blind = (gain_of(results, start, arm, m) for m in ("with picture", NEEDLESS))
            if gain:
                each = (f"{sum(x.values()) / len(x):+.3f}" for x in (gain, blind))
                told.append(f"{arm} {' and '.join(each)} ({len(gain)} of {declared} seeds)")
        lines.append(
            f"- **From the {start} start**, which answers {kept:.2f} right with the picture and {swapped:.2f} with "
            f"another scene's, RL adds with the picture and with another scene's: {'; '.join(told)}."
        )
    missing = len(starts) * declared * len(ARMS) - len(results["cells"])
    if missing > 0:
        lines.insert(0, f"- **Not complete:** {missing} of the declared cells are not run yet.")
    return "\n".join(lines)


def main() -> None:
    results = json.loads((HERE / "results.json").read_text())
    given = json.loads((HERE / "declared.json").read_text())
    starts, declared = list(given["starts"]), len(given["seeds"])
    tables = [
        f"### From the {start} start\n\n{arms_table(results, start, declared)}" for start in starts
    ]
    made = {
        "conclusions": conclusions(results, starts, declared),
        "arms": "\n\n".join(tables),
        "pairs": pairs_table(results, starts, declared),
    }
    PAGE.write_text(fill_marks(PAGE.read_text(), made))


if __name__ == "__main__":
    main()
