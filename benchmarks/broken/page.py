"""Fills the tables, the conclusions and the picture of docs/broken-tool.md: python -m benchmarks.broken.page"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.broken.study import DECLARED, STARTS
from benchmarks.cells import fill_page, trial_note
from benchmarks.paired import gains_over, of_values, verdicts
from palaestra.markdown import table
from palaestra.view.drawing import INK, LINE, MUTED, PALETTE, svg_text
from tools.pages.figure import paper

HERE = Path(__file__).parent
PAGE, PICTURE = Path("docs/broken-tool.md"), Path("docs/broken-tool.svg")
ARMS: list[str] = DECLARED["arms"]
UNIT = "seeds"
FORMS = {
    "output": "program in the reply, torl's form",
    "fence": "program in the reply, zerotir's form",
    "call": "call in the chat, tool-star's form",
}


def late(values: Sequence[float]) -> float:
    """The mean of the steps that decide."""
    return float(np.mean(values[-DECLARED["late"] :]))


def column(results: Mapping[str, Any], arm: str, condition: str, of: str) -> dict[int, float]:
    """A measure of an arm by seed; of what is measured by step the late ones."""
    values = dict[int, float]()
    for at, cell in results["cells"].items():
        name, kind, seed = at.rsplit("/", 2)
        if (name, kind) == (arm, condition) and int(seed) in DECLARED["seeds"]:
            values[int(seed)] = cell[of] if of == "greedy" else late(cell[of])
    return dict(sorted(values.items()))


def before(results: Mapping[str, Any], arm: str) -> dict[int, float]:
    """Calls an answer in the last steps before the tool breaks, by seed."""
    cut = DECLARED["break"]
    return {
        seed: late(results["cells"][f"{arm}/broken/{seed}"]["calls"][:cut])
        for seed in column(results, arm, "broken", "calls")
    }


def of_start(results: Mapping[str, Any], form: str, world: str, of: str) -> dict[int, float]:
    """What the starts of a form do without training, by seed."""
    each = {tuple(at.split("/")): x for at, x in results["starts"].items()}
    return {
        int(seed): x[world][of]
        for (name, seed), x in each.items()
        if name == form and int(seed) in DECLARED["seeds"]
    }


def judged(gains: Mapping[str, Sequence[float]], up: str, down: str) -> dict[str, str]:
    return verdicts(gains, len(DECLARED["seeds"]), up, down, DECLARED["matters"], UNIT)


def fewer_calls(results: Mapping[str, Any]) -> dict[str, list[float]]:
    """By arm: late calls with the broken tool less those with the intact one."""
    return {
        arm: gains_over(*(column(results, arm, c, "calls") for c in ("broken", "intact")))
        for arm in ARMS
    }


def over_never(results: Mapping[str, Any]) -> dict[str, list[float]]:
    """By arm: late right answers with the broken tool less those of its start that may not call."""
    return {
        arm: gains_over(
            column(results, arm, "broken", "right"),
            of_start(results, STARTS[arm], "never", "sampled"),
        )
        for arm in ARMS
    }


def listed(values: Mapping[Any, float]) -> str:
    return of_values(list(values.values()))


def arms_table(results: Mapping[str, Any]) -> str:
    gains = fewer_calls(results)
    said, rows = judged(gains, "calls more", "notices"), list[Sequence[str]]()
    for arm in ARMS:
        if not gains[arm]:
            rows.append((arm, *["not run"] * 4))
            continue
        rows.append((
            arm, listed(before(results, arm)), listed(column(results, arm, "intact", "calls")),
            listed(column(results, arm, "broken", "calls")), f"{of_values(gains[arm], '+')}, {said[arm]}",
        ))  # fmt: skip
    head = ("arm", "before the break", "late, intact", "late, broken", "broken less intact")
    return table(rows, *head)


def right_table(results: Mapping[str, Any]) -> str:
    gains = over_never(results)
    said, rows = judged(gains, "above", "below"), list[Sequence[str]]()
    for arm in ARMS:
        if not gains[arm]:
            rows.append((arm, *["not run"] * 5))
            continue
        rows.append((
            arm, *(listed(column(results, arm, c, "right")) for c in ("intact", "broken")),
            f"{of_values(gains[arm], '+')}, {said[arm]}",
            *(listed(column(results, arm, c, "greedy")) for c in ("intact", "broken")),
        ))  # fmt: skip
    head = ("arm", "late, intact", "late, broken", "broken less the start that never calls")
    return table(rows, *head, "greedy, intact", "greedy, broken")


def starts_table(results: Mapping[str, Any]) -> str:
    rows = list[Sequence[str]]()
    for form, says in FORMS.items():
        if not of_start(results, form, "never", "sampled"):
            continue
        shares = (
            listed(of_start(results, form, world, of))
            for of in ("sampled", "greedy")
            for world in ("never", "intact", "broken")
        )
        rows.append((says, *shares))
    head = [
        f"{of}, {w}" for of in ("sampled", "greedy") for w in ("never calls", "intact", "broken")
    ]
    return table(rows, "start", *head)


def conclusions(results: Mapping[str, Any]) -> str:
    seeds = len(DECLARED["seeds"])
    whole = len(ARMS) * len(DECLARED["conditions"]) * seeds
    run = sum(len(column(results, a, c, "calls")) for a in ARMS for c in DECLARED["conditions"])
    lines = trial_note(run, whole)
    calls, right = fewer_calls(results), over_never(results)
    for says, gains, said in (
        (
            "Calls an answer, late in training, broken less intact",
            calls,
            judged(calls, "calls more", "notices"),
        ),
        (
            "Right answers with the broken tool, less the start that never calls",
            right,
            judged(right, "above", "below"),
        ),
    ):
        told = [f"{a} {np.mean(x):+.2f} ({said[a]})" for a, x in gains.items() if x]
        lines.append(f"- **{says}:** {', '.join(told) or 'not run'}.")
    return "\n".join(lines)


def means(results: Mapping[str, Any], arm: str, condition: str) -> list[float]:
    """Calls an answer by step, the mean over the seeds that were run."""
    each = [
        cell["calls"]
        for at, cell in results["cells"].items()
        if at.rsplit("/", 1)[0] == f"{arm}/{condition}"
        and int(at.rsplit("/", 1)[1]) in DECLARED["seeds"]
    ]
    return np.mean(np.array(each), axis=0).tolist() if each else []


def picture(results: Mapping[str, Any]) -> str:
    """Calls an answer by step: a panel an arm, the intact tool in one colour, the broken in another."""
    width, height, left, top, wide, high = 680, 400, 46, 46, 270, 110
    parts = [
        *paper(height, width),
        svg_text(left, 18, "calls an answer by step of training", INK),
        svg_text(330, 18, "intact", PALETTE[0], weight="bold"),
        svg_text(390, 18, "broken from the dashed line on", PALETTE[1], weight="bold"),
    ]
    steps = DECLARED["steps"]
    for n, arm in enumerate(ARMS):
        x0, y0 = left + (n % 2) * (wide + 60), top + (n // 2) * (high + 66)
        x = lambda s, x0=x0: x0 + wide * s / (steps - 1)
        y = lambda v, y0=y0: y0 + high * (1 - min(v, 1.0))
        parts.append(svg_text(x0, y0 - 6, arm, INK, weight="bold"))
        for v in (0.0, 0.5, 1.0):
            parts.append(f"<path d='M{x0} {y(v):.1f}H{x0 + wide}' stroke='{LINE}'/>")
            parts.append(svg_text(x0 - 6, y(v) + 4, f"{v:g}", MUTED, "end"))
        at = x(DECLARED["break"])
        parts.append(
            f"<path d='M{at:.1f} {y0}V{y0 + high}' stroke='{MUTED}' stroke-dasharray='4 3'/>"
        )
        for s in (0, DECLARED["break"], steps - 1):
            parts.append(svg_text(x(s), y0 + high + 16, f"{s + 1}", MUTED, "middle"))
        for colour, condition in zip(PALETTE, ("intact", "broken"), strict=False):
            line = means(results, arm, condition)
            points = " ".join(f"{x(s):.1f},{y(v):.1f}" for s, v in enumerate(line))
            if points:
                parts.append(
                    f"<polyline points='{points}' fill='none' stroke='{colour}' stroke-width='2.2'/>"
                )
    return "\n".join([*parts, "</svg>\n"])


def made_parts(results: Mapping[str, Any]) -> dict[str, str]:
    return {
        "conclusions": conclusions(results),
        "arms": arms_table(results),
        "right": right_table(results),
        "starts": starts_table(results),
    }


def main() -> None:
    fill_page(HERE, PAGE, made_parts, PICTURE, picture)


if __name__ == "__main__":
    main()
