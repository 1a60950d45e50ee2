"""The page "which curriculum, when", with its pictures, from the studies in benchmarks/curricula."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from math import isnan
from pathlib import Path
from typing import Any

from palaestra.errors import UserError
from palaestra.ledger.files import read_result
from palaestra.ledger.wording import interval
from palaestra.markdown import table
from palaestra.stats import Interval, paired_difference
from palaestra.view.drawing import INK, LINE, MUTED, PALETTE, svg_text
from tools.pages.figure import NAMES, TOP, IntervalRow, intervals_svg, paper, ticks
from tools.pages.rendering import render

FOLDER = Path("benchmarks/curricula")
STUDIES = {
    "half_taught": "A habit that is half taught",
    "difficulties": "From easy to out of reach",
    "domains": "Kinds that are known, can be learned or are out of reach",
}
UNIFORM, START = "uniform", "start"
SCALES = (
    START, "uniform with twice the tokens", "mixed only with twice the tokens", "imitation",
    "what can be learned",
)  # fmt: skip
HELP = ("ghpo", "nurl", "guide", "icpo", "critique-grpo", "ampo", "rl-plus", "srft", "amft")
DOSE, BANDIT = "dose", "bandit"
MATTERS = 0.03  # the margin of the studies

Result = Mapping[str, Any]


def curricula_files(folder: Path = FOLDER) -> dict[Path, str]:
    """The page and its pictures by their paths in the repository; what is not measured is said."""
    results = {name: read_result(name, folder / "results") for name in (*STUDIES, DOSE)}
    bandit = read_result(BANDIT, folder)
    pictures = {
        **{f"curricula-{n}.svg": effects_svg(r) for n in STUDIES if (r := results[n])},
        **({"curricula-dose.svg": dose_svg(r)} if (r := results[DOSE]) else {}),
        **({"curricula-bandit.svg": bandit_svg(bandit)} if bandit else {}),
    }
    page = render(
        "curricula.md",
        studies=[(title, name, study_section(r)) for name, title in STUDIES.items()
                 if (r := results[name])],
        missing=[(title, f"palaestra reproduce {folder}/{name}.py --out {folder}")
                 for name, title in STUDIES.items() if not results[name]],
        dose=results[DOSE],
        bandit=bandit,
        across=across({n: r for n in STUDIES if (r := results[n])}),
        gain=partial(lesson, results) if all(results[n] for n in STUDIES) else None,
        greedy=lambda study, arm: f"{greedy_of(results[study], arm):.2f}",
    )  # fmt: skip
    return {Path("docs/curricula.md"): page, **{Path("docs") / n: p for n, p in pictures.items()}}


def gains(result: Result) -> dict[str, Interval]:
    """Each arm less uniform draws, over paired seeds; the start is one of them."""
    values = {a: arm["values"] for a, arm in result["arms"].items()}
    whole = {a: v for a, v in values.items() if None not in v}
    if UNIFORM not in whole:
        return {}
    return {a: paired_difference(whole[UNIFORM], v) for a, v in whole.items() if a != UNIFORM}


def kind_of(arm: str) -> str:
    return "help" if arm in HELP else "scale" if arm in SCALES else "what is drawn"


def verdict_of(gain: Interval) -> str:
    """What a reader may take from an interval. What is certainly smaller than what matters is not
    called better, though it be above 0.
    """
    if max(-gain.low, gain.high) < MATTERS:
        return "no difference that matters"
    if gain.low > 0:
        return "better"
    if gain.high < 0:
        return "worse"
    return "not decided"


def lesson(results: Mapping[str, Result | None], study: str, arm: str, verdict: str) -> str:
    """An arm's gain, where a sentence of the page builds on its verdict. Raises UserError where that
    is not its verdict.
    """
    result = results[study]
    gain = gains(result).get(arm) if result else None
    now = verdict_of(gain) if gain else "not there"
    if gain is None or now != verdict:
        raise UserError(
            f"a sentence of curricula.md builds on {arm} of {study} being {verdict!r}, and it is "
            f"{now!r}: write it anew"
        )
    return f"{gain.mean:+.3f}"


def greedy_of(result: Result | None, arm: str) -> float:
    """The mean greedy accuracy of an arm's runs; NaN where it was not kept."""
    controls = result.get("controls", {}) if result else {}
    known = controls.get("greedy", {}).get("values", {}).get(arm, [])
    found = [x for x in known if x is not None]
    return sum(found) / len(found) if found else float("nan")


def study_section(result: Result) -> str:
    """The arms in the order of their gains."""
    found = gains(result)
    failed = [
        (arm, kind_of(arm), f"failed: {n} of {len(values)}", "", "", "")
        for arm, values in ((a, r["values"]) for a, r in result["arms"].items())
        if (n := values.count(None))
    ]
    rows = [
        (
            arm,
            kind_of(arm),
            interval(result["arms"][arm]["interval"]),
            interval({"mean": gain.mean, "low": gain.low, "high": gain.high}),
            verdict_of(gain),
            "" if isnan(greedy := greedy_of(result, arm)) else f"{greedy:.2f}",
        )
        for arm, gain in sorted(found.items(), key=lambda item: -item[1].mean)
    ]
    uniform = interval(result["arms"][UNIFORM]["interval"])
    head = ("arm", "changes", "accuracy [95%]", "above uniform draws [95%]", "", "greedy")
    at = greedy_of(result, UNIFORM)
    greedy = "" if isnan(at) else f", greedy at {at:.2f}"
    return f"Uniform draws end at {uniform}{greedy}.\n\n{table([*rows, *failed], *head)}"


def across(results: Mapping[str, Result]) -> str:
    """What each arm is worth on each start, side by side."""
    found = {n: gains(r) for n, r in results.items()}
    arms = sorted(
        {a: None for r in results.values() for a in r["arms"] if a != UNIFORM}, key=kind_of
    )
    rows = [
        (a, kind_of(a), *(f"{g[a].mean:+.3f}, {verdict_of(g[a])}" if a in g
                          else "failed" if a in results[n]["arms"] else "not run"
                          for n, g in found.items()))
        for a in arms
    ]  # fmt: skip
    return table(rows, "arm", "changes", *(STUDIES[n] for n in found)) if found else ""


# ---- pictures


def effects_svg(result: Result) -> str:
    """Each arm less uniform draws, the best first."""
    colours = {"what is drawn": PALETTE[0], "help": PALETTE[1], "scale": MUTED}
    rows = [
        IntervalRow(
            name=arm, middle=gain.mean, ends=(gain.low, gain.high), colour=colour, ink=colour
        )
        for arm, gain in sorted(gains(result).items(), key=lambda item: -item[1].mean)
        for colour in [colours[kind_of(arm)]]
    ]
    return intervals_svg(f"above uniform draws: {result['metric']}", rows, names=NAMES + 30)


def dose_svg(result: Result) -> str:
    """Right answers by the share of the working that is given, for each place that it has."""
    arms = result["arms"]
    places = ("begun", "in the prompt", "another task's")
    bare = arms["bare"]["interval"]
    lines = {
        place: [(0.0, bare)]
        + [(float(a.split()[-1]), r["interval"]) for a, r in arms.items() if a.startswith(place)]
        for place in places
    }
    first = arms["first line"]["interval"]
    height, left, right, foot = 300, 46, 470, 256
    every = [v for points in lines.values() for _, i in points for v in (i["low"], i["high"])]
    top = max([*every, first["high"]]) * 1.06
    x, y = lambda v: left + (right - left) * v / 0.8, lambda v: foot - (foot - TOP) * v / top
    parts = [
        *paper(height),
        svg_text(left, 16, result["metric"], INK),
        svg_text(right, height - 8, "share of the working that is given", MUTED, "end"),
        *(f"<path d='M{left} {y(v):.1f}H{right}' stroke='{LINE}'/>" for v in ticks(0, top)),
        *(svg_text(left - 6, y(v) + 4, f"{v:g}", MUTED, "end") for v in ticks(0, top)),
        *(svg_text(x(v), foot + 16, f"{v:g}", MUTED, "middle") for v in (0, 0.25, 0.5, 0.75)),
        f"<path d='M{left} {y(first['mean']):.1f}H{right}' stroke='{MUTED}' "
        "stroke-dasharray='4 3'/>",
        svg_text(right + 8, y(first["mean"]) + 4, "first line alone", MUTED),
    ]
    for i, (place, points) in enumerate(lines.items()):
        colour = PALETTE[i]
        line = " ".join(f"{x(s):.1f},{y(v['mean']):.1f}" for s, v in points)
        parts += [
            f"<polyline points='{line}' fill='none' stroke='{colour}' stroke-width='2.2'/>",
            *(f"<path d='M{x(s):.1f} {y(v['low']):.1f}V{y(v['high']):.1f}' stroke='{colour}' "
              "stroke-width='3' stroke-opacity='0.5'/>" for s, v in points),
            svg_text(right + 8, y(points[-1][1]["mean"]) + 4, place, colour, weight="bold"),
        ]  # fmt: skip
    return "\n".join([*parts, "</svg>\n"])


def bandit_svg(found: Result) -> str:
    """Shares of six arms by step, one above the other, a panel a method."""
    panels: Mapping[str, Sequence[Sequence[float]]] = found["shares"]
    width, tall, gap = 480.0, 90.0, 34.0
    height = TOP + len(panels) * (tall + gap)
    parts = paper(int(height))
    steps = max(map(len, panels.values()))
    for n, (method, rows) in enumerate(panels.items()):
        top = TOP + n * (tall + gap)
        parts.append(svg_text(8, top - 8, f"{method}: share of a step's groups by arm", INK))
        floor = [0.0] * len(rows)
        for i, _ in enumerate(found["arms"]):
            upper = [f + r[i] for f, r in zip(floor, rows, strict=True)]
            place = lambda s, v, top=top: (
                f"{8 + width * s / max(1, steps - 1):.1f},{top + tall * (1 - v):.1f}"
            )
            there = [place(s, v) for s, v in enumerate(upper)]
            back = [place(s, v) for s, v in enumerate(floor)][::-1]
            points = " ".join(there + back)
            parts.append(f"<polygon points='{points}' fill='{PALETTE[i]}' fill-opacity='0.75'/>")
            floor = upper
    for i, arm in enumerate(found["arms"]):
        parts.append(svg_text(width + 20, TOP + 16 + 16 * i, arm, PALETTE[i], weight="bold"))
    parts.append(svg_text(8 + width, height - 8, f"step {steps}", MUTED, "end"))
    return "\n".join([*parts, "</svg>\n"])
