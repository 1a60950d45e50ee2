"""Fills the tables, the picture and the conclusions of docs/sharpening.md: python -m benchmarks.sharpening.page"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.cells import fill_page
from benchmarks.paired import gains_over, of_values, verdicts, written
from benchmarks.sharpening.study import ARMS, DECLARED, TASKS
from palaestra.markdown import table
from palaestra.stats import mean_interval, pass_at_k
from palaestra.view.drawing import DASHES, MARKERS, PALETTE, drawing_style, save

HERE = Path(__file__).parent
PAGE, PICTURE = Path("docs/sharpening.md"), Path("docs/sharpening.png")
N: int = DECLARED["answers"]
KS = (1, N)
BLOCKS = len(TASKS) * len(DECLARED["seeds"])
COLD = f"start at temperature {DECLARED['cold']:g}"


def passed(counts: Sequence[int], k: int) -> float:
    """The mean pass@k of problems with so many right answers of N."""
    return float(np.mean([pass_at_k(N, c, k) for c in counts]))


def starts(results: Mapping[str, Any]) -> dict[tuple[str, int], Mapping[str, Any]]:
    each = {tuple(at.split("/")): x for at, x in results["starts"].items()}
    return {(t, int(n)): x for (t, n), x in each.items() if int(n) in DECLARED["seeds"]}


def counts_of(results: Mapping[str, Any], arm: str) -> dict[tuple[str, int], list[int]]:
    """Right answers to each problem at the end, by block; of the colder start too."""
    if arm == COLD:
        return {at: x["cold"] for at, x in starts(results).items()}
    each = {tuple(at.split("/")): x["again"] for at, x in results["cells"].items()}
    return {(t, int(n)): x for (t, a, n), x in each.items() if a == arm and int(n) in DECLARED["seeds"]}  # fmt: skip


def gains(results: Mapping[str, Any], arm: str, k: int, task: str = "") -> list[float]:
    """pass@k of the end less that of the start's second draw, by block."""
    begun = {at: passed(x["again"], k) for at, x in starts(results).items()}
    ended = {at: passed(x, k) for at, x in counts_of(results, arm).items() if not task or at[0] == task}  # fmt: skip
    return gains_over(ended, begun)


def expansion(results: Mapping[str, Any], arm: str) -> tuple[int, int, int]:
    """Of the problems that the start's first draw never solved: how many there are, how many the end
    solves, and how many the start's second draw.
    """
    hard = now = before = 0
    begun = starts(results)
    for at, counts in counts_of(results, arm).items():
        for first, again, end in zip(begun[at]["first"], begun[at]["again"], counts, strict=True):
            if not first:
                hard, now, before = hard + 1, now + bool(end), before + bool(again)
    return hard, now, before


def said_of(results: Mapping[str, Any], k: int) -> dict[str, str]:
    each = {arm: gains(results, arm, k) for arm in ARMS}
    return verdicts(each, BLOCKS, "above", "below", DECLARED["matters"], "blocks")


def read_of(one: str, many: str) -> str:
    """What the two verdicts mean together, as it was declared."""
    if "trial" in one or "trial" in many:
        return "trial"
    if many == "above":
        return "adds"
    return "sharpens" if one == "above" else "neither is seen"


def arms_table(results: Mapping[str, Any]) -> str:
    one, many = (said_of(results, k) for k in KS)
    rows = list[Sequence[str]]()
    for arm in (*ARMS, COLD):
        each = [of_values(gains(results, arm, k), "+") for k in KS]
        hard, now, before = expansion(results, arm)
        verdict = [f", {x[arm]}" if arm in ARMS else "" for x in (one, many)]
        rows.append((
            arm, each[0] + verdict[0], each[1] + verdict[1], f"{now} of {hard}, start again {before}",
            f"**{read_of(one[arm], many[arm])}**" if arm in ARMS else "a baseline",
        ))  # fmt: skip
    head = (
        "pass@1 less the start",
        f"pass@{N} less the start",
        "never solved by the start, solved now",
    )
    return table(rows, "recipe", *head, "reading")


def tasks_table(results: Mapping[str, Any]) -> str:
    """Each task by itself: the start, a guess, and the changes."""
    rows = list[Sequence[str]]()
    for task in TASKS:
        begun = {at: x for at, x in starts(results).items() if at[0] == task}
        own = [of_values([passed(x["again"], k) for x in begun.values()]) for k in KS]
        lots = [len({*x["golds"]}) for x in begun.values()]
        guess = [f"{np.mean([1 - (1 - 1 / a) ** k for a in lots]):.3f}" if lots else "" for k in KS]
        for k, start, chance in zip(KS, own, guess, strict=True):
            cells = [of_values(gains(results, arm, k, task), "+") for arm in (*ARMS, COLD)]
            rows.append((task, f"{k}", start, chance, *cells))
    return table(rows, "task", "k", "start", "a guess", *ARMS, COLD)


def conclusions(results: Mapping[str, Any]) -> str:
    lines, run, whole = list[str](), len(results["cells"]), BLOCKS * len(ARMS)
    if run < whole:
        lines.append(
            f"- **Not complete:** {run} of {whole} declared cells are run, so everything below is a trial without a verdict."
        )
    one, many = (said_of(results, k) for k in KS)
    readings = {arm: read_of(one[arm], many[arm]) for arm in ARMS}
    for reading in ("adds", "sharpens", "neither is seen", "trial"):
        those = [arm for arm in ARMS if readings[arm] == reading]
        if those:
            told = "; ".join(
                f"{arm} pass@1 {of_values(gains(results, arm, 1), '+')}, pass@{N} {of_values(gains(results, arm, N), '+')}"
                for arm in those
            )
            lines.append(f"- **{reading[0].upper()}{reading[1:]}:** {told}.")
    cold = [mean_interval(g) for k in KS if (g := gains(results, COLD, k))]
    if cold:
        lines.append(
            f"- **Without training**, a temperature of {DECLARED['cold']:g} moves pass@1 by {written(cold[0], '+')} and "
            f"pass@{N} by {written(cold[1], '+')}."
        )
    return "\n".join(lines)


def draw(results: Mapping[str, Any]) -> None:
    """pass@k over k on each task: the start and the recipes, means over seeds."""
    from matplotlib.figure import Figure

    ks = [1 << i for i in range(N.bit_length()) if 1 << i <= N]
    with drawing_style():
        figure = Figure(figsize=(10.4, 3.2), layout="constrained")
        panels: Any = figure.subplots(1, len(TASKS), sharey=True)
        for axes, task in zip(panels, TASKS, strict=True):
            begun = [x for at, x in starts(results).items() if at[0] == task]
            drawn = {"start": [x["again"] for x in begun], COLD: [x["cold"] for x in begun]}
            drawn |= {a: [x for at, x in counts_of(results, a).items() if at[0] == task] for a in ARMS}  # fmt: skip
            for i, (name, each) in enumerate(drawn.items()):
                if each:
                    y = [float(np.mean([passed(x, k) for x in each])) for k in ks]
                    axes.plot(
                        ks, y, label=name, color=PALETTE[i % len(PALETTE)], marker=MARKERS[i % len(MARKERS)],
                        linestyle=DASHES[i // len(PALETTE) % len(DASHES)], markersize=3.5,
                    )  # fmt: skip
            axes.set_xscale("log", base=2)
            axes.set_xticks(ks[::2], [f"{k}" for k in ks[::2]])
            axes.minorticks_off()
            axes.set_title(task, fontsize=9)
            axes.set_xlabel("answers")
        panels[0].set_ylabel("problems solved")
        panels[-1].legend(frameon=False, fontsize=8, loc="center left", bbox_to_anchor=(1.0, 0.5))
        save(figure, PICTURE)


def made_parts(results: Mapping[str, Any]) -> dict[str, str]:
    return {
        "conclusions": conclusions(results),
        "arms": arms_table(results),
        "tasks": tasks_table(results),
    }


def main() -> None:
    draw(fill_page(HERE, PAGE, made_parts))


if __name__ == "__main__":
    main()
