"""Fills the table of docs/speed.md on the time to quality: python -m benchmarks.quality.page"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import exp, log
from pathlib import Path
from typing import Any

from benchmarks.quality.cell import DECLARED
from benchmarks.quality.study import FILE, RESULTS, SYSTEMS, chosen, missing, name_of, seconds
from palaestra.markdown import fill_marks, table
from palaestra.stats import Interval, mean_interval

PAGE = Path("docs/speed.md")
NAMES = {"palaestra": "Palaestra", "trl": "TRL"}
CLOCKS = ("processor", "wall")


def reached(
    cells: Mapping[str, Any], task: str, system: str, clock: str = "processor"
) -> dict[int, float]:
    """Seconds to the target of the reported seeds that are run and reach it, with the system's chosen setting."""
    best = chosen(cells, task, system)
    if best is None:
        return {}
    run = {s: cells[n] for s in DECLARED["seeds"] if (n := name_of(task, system, best, s)) in cells}
    return {s: t for s, c in run.items() if (t := seconds(c, clock)) is not None}


def ratio(cells: Mapping[str, Any], task: str, clock: str = "processor") -> Interval | None:
    """TRL's seconds for one of Palaestra's: the geometric mean over seeds that both have, with its interval."""
    own, peer = (reached(cells, task, x, clock) for x in SYSTEMS)
    logs = [log(peer[s] / own[s]) for s in sorted(own.keys() & peer.keys())]
    if not logs:
        return None
    found = mean_interval(logs)
    return Interval(mean=exp(found.mean), low=exp(found.low), high=exp(found.high), n=found.n)


def shown(ratio: Interval | None) -> str:
    if ratio is None:
        return ""
    return f"{ratio.mean:.2f}" + (f" [{ratio.low:.2f}, {ratio.high:.2f}]" if ratio.n > 1 else "")


def setting(task: str, i: int) -> str:
    s = DECLARED["settings"][task][i]
    return f"lr {s['lr']:g}, {s['prompts']} x {s['group']}"


def choice_rows(cells: Mapping[str, Any], task: str) -> list[Sequence[str]]:
    """Mean processor seconds to the target of each setting on the seeds of choice, of both systems."""
    rows = list[Sequence[str]]()
    for i in range(len(DECLARED["settings"][task])):
        row = [task, setting(task, i)]
        for x in SYSTEMS:
            run = [
                cells[n]
                for s in DECLARED["seeds of choice"]
                if (n := name_of(task, x, i, s)) in cells
            ]
            took = [seconds(c) for c in run]
            some = [t for t in took if t is not None]
            missed = (
                f", {len(took) - len(some)} of {len(took)} seeds not"
                if len(some) < len(took)
                else ""
            )
            mean = f"{sum(some) / len(some):.1f}" if some else "none"
            row.append(
                f"{mean}{missed}{', chosen' if chosen(cells, task, x) == i else ''}"
                if run
                else "not run"
            )
        rows.append(row)
    return rows


def result_rows(cells: Mapping[str, Any], task: str) -> list[Sequence[str]]:
    rules = DECLARED["tasks"][task]
    rows = list[Sequence[str]]()
    for x in SYSTEMS:
        best, took = chosen(cells, task, x), reached(cells, task, x)
        if best is None:
            continue
        ends = [cells[n] for s in DECLARED["seeds"] if (n := name_of(task, x, best, s)) in cells]
        steps = [len(c["steps"]) for c in ends if c["reached"]]
        times = [f"{t:.1f}" for t in took.values()]
        rows.append((
            f"{task}, {rules['model']}: {rules['target']:g}", NAMES[x], setting(task, best), f"{len(took)} of {len(ends)}",
            f"{min(steps)} to {max(steps)}" if steps else "", ", ".join(times),
            shown(ratio(cells, task)) if x == "trl" else "", shown(ratio(cells, task, "wall")) if x == "trl" else "",
        ))  # fmt: skip
    return rows


def whole(results: Mapping[str, Any]) -> str:
    cells = results["cells"]
    tasks = [t for t in DECLARED["tasks"] if any(n.startswith(f"{t}/") for n in cells)]
    left = sum(name_of(*x) not in cells for x in missing(cells, tasks))
    untried = [t for t in DECLARED["tasks"] if t not in tasks]
    found = table(
        [r for t in tasks for r in result_rows(cells, t)],
        "task and target", "system", "its setting", "seeds that reach it", "steps", "processor s, by seed",
        "TRL / Palaestra, processor", "by the wall",
    )  # fmt: skip
    tried = table(
        [r for t in tasks for r in choice_rows(cells, t)],
        "task", "setting: rate, prompts x answers", "processor s of Palaestra", "of TRL",
    )  # fmt: skip
    lines = [found, "What was tried, on two other seeds:", tried]
    if left or untried:
        lines.append(
            f"**Not complete:** {left} declared cells are missing, and of {', '.join(untried) or 'no task'} all."
        )
    peer, machine = results["trl"], results["machine"]
    lines.append(
        f"{machine['processor']}, one thread, torch {machine['torch']}; TRL {peer[0]} on transformers {peer[1]}."
    )
    return "\n\n".join(lines)


def main() -> None:
    PAGE.write_text(fill_marks(PAGE.read_text(), {"quality": whole(FILE.read(RESULTS))}))


if __name__ == "__main__":
    main()
