"""The pictures of a result, its learning curves and its effect, as small SVGs, written by hand so
that equal numbers give equal bytes everywhere.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from palaestra.ledger.expectations import Expectation
from palaestra.stats import t_quantile
from palaestra.types import value_class
from palaestra.view.drawing import INK, LINE, MUTED, PALETTE, PAPER, svg_text, thousands

WIDTH, HEIGHT = 640, 300
LEFT, RIGHT, TOP, BOTTOM = 46, 170, 30, 36
FONT = "font-family='DejaVu Sans, Verdana, sans-serif' font-size='11'"
GAP = 14  # between labels at the ends of curves
ROW, NAMES = 26, 190  # of a picture of effects: its rows, and the width of their names


def curves_svg(arms: Mapping[str, Mapping[str, Any]]) -> str:
    """Training reward over sampled tokens, or over what else the arms were given: a line an arm, its
    95% t band over seeds, its name at the end. "" without curves, and without such a meter.
    """
    drawn = {n: c for n, arm in arms.items() if (c := arm.get("curve")) and c["tokens"][-1]}
    if not drawn:
        return ""
    bands = {
        name: band(c, sum(t is not None for t in arms[name]["sampled_tokens"]))
        for name, c in drawn.items()
    }
    (meter,) = {c.get("over", "sampled tokens") for c in drawn.values()}
    last = max(c["tokens"][-1] for c in drawn.values())
    lowest = min(min(low) for low, _ in bands.values())
    highest = max(max(high) for _, high in bands.values())
    pad = 0.06 * ((highest - lowest) or 1.0)
    low, high = lowest - pad, highest + pad
    x = lambda v: LEFT + (WIDTH - LEFT - RIGHT) * v / last
    y = lambda v: HEIGHT - BOTTOM - (HEIGHT - TOP - BOTTOM) * (v - low) / (high - low)
    parts = [
        *paper(HEIGHT),
        svg_text(LEFT, 16, "reward of the training batch", INK),
        svg_text(x(last), HEIGHT - 8, meter.replace("_", " "), MUTED, "end"),
    ]
    for v in ticks(low, high):
        parts.append(f"<path d='M{LEFT} {y(v):.1f}H{x(last):.1f}' stroke='{LINE}'/>")
        parts.append(svg_text(LEFT - 6, y(v) + 4, f"{v:g}", MUTED, "end"))
    parts += [
        svg_text(x(v), HEIGHT - 22, thousands(v), MUTED, "middle") for v in ticks(0, last) if v
    ]
    ends = spread({name: y(c["reward"][-1]) for name, c in drawn.items()})
    for i, (name, c) in enumerate(drawn.items()):
        colour, (under, over) = PALETTE[i % len(PALETTE)], bands[name]
        there = [f"{x(t):.1f},{y(v):.1f}" for t, v in zip(c["tokens"], over, strict=True)]
        back = [f"{x(t):.1f},{y(v):.1f}" for t, v in zip(c["tokens"], under, strict=True)][::-1]
        parts.append(
            f"<polygon points='{' '.join(there + back)}' fill='{colour}' fill-opacity='0.13'/>"
        )
        line = " ".join(
            f"{x(t):.1f},{y(v):.1f}" for t, v in zip(c["tokens"], c["reward"], strict=True)
        )
        parts.append(
            f"<polyline points='{line}' fill='none' stroke='{colour}' stroke-width='2.2'/>"
        )
        parts.append(svg_text(x(c["tokens"][-1]) + 8, ends[name] + 4, name, colour, weight="bold"))
    return "\n".join([*parts, "</svg>\n"])


def effect_svg(result: Mapping[str, Any], expect: Expectation) -> str:
    """The effect of a result as rows of intervals: over all seeds, by block with the difference of
    each seed as a dot, of a third block, and against each arm that lacks a reason. What the
    expectation asks for is a broken line. "" without an effect by block.
    """
    rows = [
        IntervalRow(
            name=name,
            middle=found["effect"],
            ends=tuple(found["ci95"]),
            dots=tuple(dots),
            colour=PALETTE[0] if dots or not i else PALETTE[1],
            weight="normal" if i else "bold",
        )
        for i, (name, found, dots) in enumerate(effect_rows(result, expect))
    ]
    title = f"{expect.arms[1]} - {expect.arms[0]}: {result['metric']}"
    return intervals_svg(title, rows, margins=expect.margins) if rows else ""


@value_class
class IntervalRow:
    """A row of `intervals_svg`: an interval with its middle, and single values as dots."""

    name: str
    middle: float
    ends: tuple[float, float]
    dots: tuple[float, ...] = ()
    colour: str = PALETTE[0]
    ink: str = INK  # of the name
    weight: str = "normal"


def intervals_svg(
    title: str, rows: Sequence[IntervalRow], *, margins: Sequence[float] = (), names: int = NAMES
) -> str:
    """Intervals one below the other around 0, the names in a column of `names` pixels; `margins`
    are broken lines.
    """
    every = [0.0, *margins, *(v for row in rows for v in (*row.ends, *row.dots))]
    pad = 0.06 * ((max(every) - min(every)) or 1.0)
    low, high = min(every) - pad, max(every) + pad
    height = TOP + ROW * len(rows) + BOTTOM
    x = lambda v: names + (WIDTH - names - 20) * (v - low) / (high - low)
    foot = height - BOTTOM
    parts = [
        *paper(height),
        svg_text(8, 16, title, INK),
        *(f"<path d='M{x(v):.1f} {TOP}V{foot}' stroke='{LINE}'/>" for v in ticks(low, high)),
        *(svg_text(x(v), foot + 16, f"{v:g}", MUTED, "middle") for v in ticks(low, high)),
        f"<path d='M{x(0.0):.1f} {TOP}V{foot}' stroke='{INK}'/>",
        *(f"<path d='M{x(v):.1f} {TOP}V{foot}' stroke='{INK}' stroke-dasharray='4 3'/>"
          for v in margins),
        *(svg_text(x(v), foot + 30, "margin", MUTED, "middle") for v in margins[-1:]),
    ]  # fmt: skip
    for i, row in enumerate(rows):
        y, (left, right) = TOP + ROW * (i + 0.5), map(x, row.ends)
        parts += [
            svg_text(8, y + 4, row.name, row.ink, weight=row.weight),
            f"<path d='M{left:.1f} {y:.1f}H{right:.1f}' stroke='{row.colour}' stroke-width='3'/>",
            *(f"<circle cx='{x(v):.1f}' cy='{y:.1f}' r='3' fill='{PAPER}' stroke='{row.colour}'/>"
              for v in row.dots),
            f"<path d='M{x(row.middle):.1f} {y - 7:.1f}v14' stroke='{row.colour}' "
            "stroke-width='3'/>",
        ]  # fmt: skip
    return "\n".join([*parts, "</svg>\n"])


def effect_rows(
    result: Mapping[str, Any], expect: Expectation
) -> list[tuple[str, Mapping[str, Any], list[float]]]:
    """Name, effect with its interval, and the differences of single seeds."""
    if not result.get("by_block"):
        return []
    than, better = expect.arms
    rows: list[tuple[str, Mapping[str, Any], list[float]]] = [("all seeds", result, [])]
    values = {a: iter(result["arms"][a]["values"]) for a in (than, better)}
    for seeds, block in zip(result["blocks"], result["by_block"], strict=True):
        dots = [next(values[better]) - next(values[than]) for _ in seeds]
        rows.append((f"seeds {seeds[0]} to {seeds[-1]}", block, dots))
    found = result.get("fresh") or {}
    if found.get("effect") is not None:
        pairs = zip(found["values"][than], found["values"][better], strict=True)
        name = f"fresh: {found['seeds'][0]} to {found['seeds'][-1]}"
        rows.append((name, found, [b - a for a, b in pairs]))
    rows += [
        (f"above {name}", c, [])
        for name, c in result["controls"].items()
        if c["kind"] == "reason" and "ci95" in c
    ]
    return rows


def paper(height: int, width: int = WIDTH) -> list[str]:
    """The beginning of a picture."""
    return [
        f"<svg xmlns='http://www.w3.org/2000/svg' viewBox='0 0 {width} {height}' width='{width}' "
        f"height='{height}' {FONT}>",
        f"<rect width='{width}' height='{height}' fill='{PAPER}'/>",
    ]


def band(curve: Mapping[str, Sequence[float]], runs: int) -> tuple[list[float], list[float]]:
    """Ends of the 95% t interval along a curve; the curve itself where there is one run."""
    spread_N = curve.get("deviation", [0.0] * len(curve["reward"]))
    factor = t_quantile(0.975, runs - 1) / runs**0.5 if runs > 1 else 0.0
    pairs = list(zip(curve["reward"], spread_N, strict=True))
    return [m - factor * s for m, s in pairs], [m + factor * s for m, s in pairs]


def ticks(low: float, high: float) -> list[float]:
    """Three to six multiples of 1, 2 or 5 times a power of ten."""
    sizes = (float(f"{k}e{e}") for e in range(-9, 15) for k in (1, 2, 5))
    step = next(s for s in sizes if high - low < 6 * s)
    first = math.ceil(low / step - 1e-9)
    return [round(k * step, 10) for k in range(first, first + 7) if k * step <= high + 1e-9 * step]


def spread(at: Mapping[str, float]) -> dict[str, float]:
    """Heights of labels, moved down until none covers another."""
    found: dict[str, float] = {}
    for name in sorted(at, key=lambda n: at[n]):
        found[name] = max([at[name], *(h + GAP for h in found.values())])
    return found
