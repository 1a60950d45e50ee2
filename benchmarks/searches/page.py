"""Fills the tables and the conclusions of docs/search-study.md, and draws its picture: python -m benchmarks.searches.page"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks.cells import fill_page
from benchmarks.curves import Point, panels_svg
from benchmarks.paired import gains_over, of_values, summed_up, verdicts
from benchmarks.searches.study import DECLARED, ORACLE, SINGLE, STRATEGIES, TASKS
from palaestra.markdown import table
from palaestra.stats import mean_interval

HERE = Path(__file__).parent
PAGE, PICTURE = Path("docs/search-study.md"), Path("docs/search-study.svg")
BASE, GREEDY, SAMPLED = "majority", *SINGLE.values()
EACH = (GREEDY, SAMPLED, *STRATEGIES, ORACLE)
LEAST = 2  # seeds, for an interval and so for a curve
TOP = 3  # the place of the whole budget among the four


def column(results: Mapping[str, Any], task: str, model: str, name: str, at: int = TOP) -> dict[int, float]:  # fmt: skip
    """Accuracy of a strategy at the budget number `at`, by declared seed."""
    blocks = {tuple(k.split("/")): b for k, b in results["blocks"].items()}
    return {
        int(n): b["strategies"][name]["accuracy"][at]
        for (a, m, n), b in sorted(blocks.items())
        if (a, m) == (task, model) and int(n) in DECLARED["seeds"]
    }


def differences(results: Mapping[str, Any], task: str, model: str, base: str) -> dict[str, list[float]]:  # fmt: skip
    """The strategies at the whole budget less one of them, or less one greedy answer."""
    than = column(results, task, model, base)
    return {s: gains_over(column(results, task, model, s), than) for s in STRATEGIES if s != base}


def said_of(gains: Mapping[str, Sequence[float]], up: str, down: str) -> dict[str, str]:
    return verdicts(gains, len(DECLARED["seeds"]), up, down, DECLARED["matters"], "seeds")


def there(results: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Tasks and models with a block."""
    return [(t, m) for m in DECLARED["models"] for t in TASKS if column(results, t, m, BASE)]


def strategies_table(results: Mapping[str, Any], task: str, model: str) -> str:
    """Accuracy by budget, and what decides."""
    to_base, to_greedy = (differences(results, task, model, b) for b in (BASE, GREEDY))
    beside, above = said_of(to_base, "better", "worse"), said_of(to_greedy, "above", "below")
    rows = list[Sequence[str]]()
    for name in EACH:
        each = [list(column(results, task, model, name, at).values()) for at in range(TOP + 1)]
        if name in SINGLE.values():
            rows.append((name, "", "", "", of_values(each[TOP]), "", ""))
            continue
        means = [f"{sum(x) / len(x):.3f}" for x in each[:TOP]]
        rows.append((
            name, *means, of_values(each[TOP]),
            f"{of_values(to_greedy[name], '+')}, {above[name]}" if name in to_greedy else "",
            f"{of_values(to_base[name], '+')}, {beside[name]}" if name in to_base else "",
        ))  # fmt: skip
    parts = (f"{DECLARED['budget'] // 2 ** (TOP - at)} tokens" for at in range(TOP))
    return table(
        rows, "strategy", *parts, f"{DECLARED['budget']} tokens (decides)", "less one greedy answer", "less majority"
    )  # fmt: skip


def blocks_table(results: Mapping[str, Any]) -> str:
    """Reward models, and how exactly budgets were kept."""
    rows = list[Sequence[str]]()
    for task, model in there(results):
        own = [
            b for k, b in results["blocks"].items()
            if k.startswith(f"{task}/{model}/") and int(k.split("/")[2]) in DECLARED["seeds"]
        ]  # fmt: skip
        spent = [b["least and most tokens over the budget"] for b in own]
        rows.append((
            task, model, f"{len(own)}", f"{min(b['pairs'] for b in own)} to {max(b['pairs'] for b in own)}",
            f"{min(b['beginnings'] for b in own)} to {max(b['beginnings'] for b in own)}",
            of_values([b["ranked right"] for b in own]),
            f"{min(s[0] for s in spent):.1%} to {max(s[1] for s in spent):.1%}",
        ))  # fmt: skip
    return table(
        rows, "task", "model", "blocks", "pairs", "pairs of beginnings", "held-out pairs ranked right",
        "tokens of a problem, of the budget",
    )  # fmt: skip


def conclusions(results: Mapping[str, Any]) -> str:
    """Sentences that follow from the numbers."""
    lines, needed = list[str](), len(DECLARED["seeds"])
    whole = len(DECLARED["models"]) * len(TASKS) * needed
    run = sum(len(column(results, t, m, BASE)) for t, m in there(results))
    if run < whole:
        lines.append(
            f"- **Not complete:** {run} of the {whole} declared blocks are run. A task with a missing block has no "
            "verdict for that model."
        )
    for task, model in there(results):
        greedy = list(column(results, task, model, GREEDY).values())
        above, beside = (differences(results, task, model, b) for b in (GREEDY, BASE))
        said = said_of(above, "above", "below"), said_of(beside, "better", "worse")
        lines.append(
            f"- **{task}, {model}** (one greedy answer: {sum(greedy) / len(greedy):.3f}). "
            f"{summed_up(GREEDY, above, said[0], needed, 'seeds')} {summed_up(BASE, beside, said[1], needed, 'seeds')}"
        )
    return "\n".join(lines)


def picture(results: Mapping[str, Any]) -> str:
    """Accuracy against tokens: a panel for each task and model of which two seeds are run."""
    panels = dict[str, dict[str, list[Point]]]()
    budgets = [DECLARED["budget"] // 2 ** (TOP - at) for at in range(TOP + 1)]
    for task, model in there(results):
        if len(column(results, task, model, BASE)) < LEAST:
            continue
        curves = panels.setdefault(f"{task}, {model}", {})
        for name in (*STRATEGIES, ORACLE, GREEDY):
            each = [mean_interval(list(column(results, task, model, name, at).values())) for at in range(TOP + 1)]  # fmt: skip
            points = list(zip(map(math.log2, budgets), each, strict=True))
            curves[name] = points[TOP:] if name == GREEDY else points
    colours = {name: i for i, name in enumerate((*STRATEGIES, GREEDY))} | {ORACLE: 0}
    marks = [(math.log2(b), str(b)) for b in budgets]
    return panels_svg(
        "accuracy on held-out problems, 95% t intervals over seeds", "generated tokens for each problem", panels, colours,
        (ORACLE, GREEDY), marks,
    )  # fmt: skip


def made_parts(results: Mapping[str, Any]) -> dict[str, str]:
    tables = [
        f"### {task}, {model}\n\n{strategies_table(results, task, model)}"
        for task, model in there(results)
    ]
    return {
        "conclusions": conclusions(results),
        "strategies": "\n\n".join(tables),
        "blocks": blocks_table(results),
    }


def main() -> None:
    fill_page(HERE, PAGE, made_parts, PICTURE, picture)


if __name__ == "__main__":
    main()
