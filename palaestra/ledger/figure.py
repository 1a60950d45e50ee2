"""The learning curves of an experiment as a small SVG, written by hand so that equal numbers give
equal bytes everywhere.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from palaestra.stats import t_quantile
from palaestra.view.drawing import INK, LINE, MUTED, PALETTE, PAPER, svg_text, thousands

WIDTH, HEIGHT = 640, 300
LEFT, RIGHT, TOP, BOTTOM = 46, 170, 30, 36
FONT = "font-family='DejaVu Sans, Verdana, sans-serif' font-size='11'"
GAP = 14  # between labels at the ends of curves


def curves_svg(arms: Mapping[str, Mapping[str, Any]]) -> str:
    """Training reward over sampled tokens: a line an arm, its 95% t band over seeds, its name at
    the end. "" without curves.
    """
    drawn = {name: arm["curve"] for name, arm in arms.items() if arm.get("curve")}
    if not drawn:
        return ""
    bands = {
        name: band(c, sum(t is not None for t in arms[name]["sampled_tokens"]))
        for name, c in drawn.items()
    }
    last = max(c["tokens"][-1] for c in drawn.values())
    lowest = min(min(low) for low, _ in bands.values())
    highest = max(max(high) for _, high in bands.values())
    pad = 0.06 * ((highest - lowest) or 1.0)
    low, high = lowest - pad, highest + pad
    x = lambda v: LEFT + (WIDTH - LEFT - RIGHT) * v / last
    y = lambda v: HEIGHT - BOTTOM - (HEIGHT - TOP - BOTTOM) * (v - low) / (high - low)
    parts = [
        f"<svg xmlns='http://www.w3.org/2000/svg' viewBox='0 0 {WIDTH} {HEIGHT}' width='{WIDTH}' "
        f"height='{HEIGHT}' {FONT}>",
        f"<rect width='{WIDTH}' height='{HEIGHT}' fill='{PAPER}'/>",
        svg_text(LEFT, 16, "reward of the training batch", INK),
        svg_text(x(last), HEIGHT - 8, "sampled tokens", MUTED, "end"),
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
