"""Curves with intervals over seeds as small SVGs, written by hand so that equal numbers give equal bytes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from palaestra.stats import Interval
from palaestra.view.drawing import INK, LINE, MUTED, PALETTE, svg_text
from tools.pages.figure import LEFT, TOP, WIDTH, paper, spread, ticks

Point = tuple[float, Interval]  # where it stands, and its mean with the interval over seeds
PANEL, GAP, FOOT, RIGHT = 190.0, 52.0, 34.0, 190.0


def panels_svg(
    title: str,
    below: str,
    panels: Mapping[str, Mapping[str, Sequence[Point]]],
    colours: Mapping[str, int],
    dashed: Sequence[str] = (),
    marks: Sequence[tuple[float, str]] = (),
) -> str:
    """Curves by name, a panel each, one above the other.

    Args:
        title, below: what the heights are, and what stands below all panels.
        panels: by title the curves by name; a curve of one point is a level across the panel.
        colours: of the names, as places of the palette.
        dashed: names whose lines are broken.
        marks: places on the horizontal axis with their words; () = round numbers.
    """
    height = TOP + len(panels) * (PANEL + GAP) + FOOT - GAP + 24
    parts = paper(int(height))
    parts.append(svg_text(8, 14, title, INK))
    for i, (name, curves) in enumerate(panels.items()):
        drawn = {n: c for n, c in curves.items() if c}
        parts += panel(TOP + 22 + i * (PANEL + GAP), name, drawn, colours, dashed, marks)
    parts.append(svg_text(WIDTH - RIGHT, height - 6, below, MUTED, "end"))
    return "\n".join([*parts, "</svg>\n"])


def panel(
    top: float,
    name: str,
    curves: Mapping[str, Sequence[Point]],
    colours: Mapping[str, int],
    dashed: Sequence[str],
    marks: Sequence[tuple[float, str]],
) -> list[str]:
    parts = [svg_text(LEFT, top - 8, name, INK, weight="bold")]
    every = [p for c in curves.values() for p in c]
    places = [at for c in curves.values() if len(c) > 1 for at, _ in c]
    if not every or not places:
        return [*parts, svg_text(LEFT, top + 20, "not run", MUTED)]
    first, last = min(places), max(places)
    low, high = min(i.low for _, i in every), max(i.high for _, i in every)
    pad = 0.04 * ((high - low) or 1.0)
    low, high, right = low - pad, high + pad, WIDTH - RIGHT
    x = lambda v: LEFT + (right - LEFT) * (v - first) / ((last - first) or 1.0)
    y = lambda v: top + PANEL * (high - v) / (high - low)
    for v in ticks(low, high):
        parts.append(f"<path d='M{LEFT} {y(v):.1f}H{right:.1f}' stroke='{LINE}'/>")
        parts.append(svg_text(LEFT - 6, y(v) + 4, f"{v:g}", MUTED, "end"))
    for v, word in marks or [(v, f"{v:g}") for v in ticks(first, last)]:
        parts.append(svg_text(x(v), top + PANEL + 16, word, MUTED, "middle"))
    ends = spread({n: y(c[-1][1].mean) for n, c in curves.items()})
    for n, curve in curves.items():
        colour = PALETTE[colours[n] % len(PALETTE)]
        broken = " stroke-dasharray='5 3'" if n in dashed else ""
        line = curve if len(curve) > 1 else [(first, curve[0][1]), (last, curve[0][1])]
        points = " ".join(f"{x(at):.1f},{y(i.mean):.1f}" for at, i in line)
        parts.append(
            f"<polyline points='{points}' fill='none' stroke='{colour}' stroke-width='2'{broken}/>"
        )
        parts += [
            f"<path d='M{x(at):.1f} {y(i.low):.1f}V{y(i.high):.1f}' stroke='{colour}' "
            "stroke-width='2.5' stroke-opacity='0.35'/>"
            for at, i in (curve if len(curve) > 1 else ())
        ]
        parts.append(svg_text(right + 8, ends[n] + 4, n, colour, weight="bold"))
    return parts
