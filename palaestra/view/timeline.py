"""A picture of who works when: a lane a worker, a bar a span, colours by the version of the weights."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from palaestra.planning.trace import Span
from palaestra.view.drawing import INK, LINE, MUTED, PALETTE, PAPER, svg_text

WIDTH, LEFT, RIGHT = 820, 90, 16
TITLE, LANE, BAR, BETWEEN, FOOT = 24, 20, 15, 14, 42
LETTER = 6.2  # pixels of a character, to see which names fit into their bars
FONT = "font-family='DejaVu Sans, Verdana, sans-serif' font-size='10'"
WIDTHS = (1, 2, 5)  # of the time between two lines, times a power of ten


def timeline_svg(panels: Mapping[str, Sequence[Span]], until: float | None = None) -> str:
    """Spans as an SVG, a panel for each title, all on one axis of time, so that panels compare.

    Args:
        panels: the spans of each, by its title.
        until: seconds at which the picture ends (default: with the last span).
    """
    end = until or max((s.end for spans in panels.values() for s in spans), default=1.0)
    x = lambda t: LEFT + (WIDTH - LEFT - RIGHT) * min(t, end) / end
    lanes = {
        title: sorted({(s.role, s.worker) for s in spans}, key=order)
        for title, spans in panels.items()
    }
    height = sum(TITLE + LANE * len(shape) + BETWEEN for shape in lanes.values()) + FOOT
    parts = [
        f"<svg xmlns='http://www.w3.org/2000/svg' viewBox='0 0 {WIDTH} {height}' width='{WIDTH}' "
        f"height='{height}' {FONT}>",
        f"<rect width='{WIDTH}' height='{height}' fill='{PAPER}'/>",
    ]
    gap = spacing(end)
    marks = [gap * k for k in range(int(end / gap + 1e-9) + 1)]
    top = 0.0
    for title, spans in panels.items():
        foot = top + TITLE + LANE * len(lanes[title])
        last = max((s.end for s in spans), default=0.0)
        last_text = f", {last:.3g} s" if last <= end else ""
        parts.append(svg_text(8, top + 16, f"{title}{last_text}", INK, weight="bold"))
        parts += [
            f"<path d='M{x(t):.1f} {top + TITLE:.1f}V{foot:.1f}' stroke='{LINE}'/>" for t in marks
        ]
        at = {lane: top + TITLE + LANE * i for i, lane in enumerate(lanes[title])}
        parts += [
            svg_text(LEFT - 8, y + BAR - 3, f"{role} {worker}", MUTED, "end")
            for (role, worker), y in at.items()
        ]
        parts += [part for s in spans if s.begin < end for part in bar(s, at[s.role, s.worker], x)]
        top = foot + BETWEEN
    parts += [svg_text(x(t), top + 2, f"{t:g}", MUTED, "middle") for t in marks]
    parts.append(svg_text(WIDTH - RIGHT, top + 16, "seconds", MUTED, "end"))
    parts += legend(panels, top + 18)
    return "\n".join([*parts, "</svg>\n"])


def order(lane: tuple[str, int]) -> tuple[bool, str, int]:
    """Learners last, as results flow downwards."""
    role, worker = lane
    return role == "learner", role, worker


def colour_of(version: int | None) -> str:
    return MUTED if version is None else PALETTE[version % (len(PALETTE) - 1)]  # the last is MUTED


def bar(span: Span, y: float, x: Callable[[float], float]) -> list[str]:
    """A span's bar, with its name where that fits."""
    left, width = x(span.begin), max(0.8, x(span.end) - x(span.begin))
    shapes = [
        f"<rect x='{left:.1f}' y='{y:.1f}' width='{width:.1f}' height='{BAR}' "
        f"fill='{colour_of(span.version)}' stroke='{PAPER}' stroke-width='0.7'/>"
    ]
    if width > LETTER * len(span.name) + 4:
        shapes.append(svg_text(left + width / 2, y + BAR - 4, span.name, PAPER, "middle"))
    return shapes


def legend(panels: Mapping[str, Sequence[Span]], y: float) -> list[str]:
    """Colours of the versions that there are."""
    versions = sorted(
        {s.version for spans in panels.values() for s in spans if s.version is not None}
    )
    coloured = versions[: len(PALETTE) - 1]
    parts = [svg_text(LEFT, y + 9, "weights of version", MUTED)] if coloured else []
    for i, version in enumerate(coloured):
        left = LEFT + 112 + 36 * i
        parts.append(
            f"<rect x='{left}' y='{y:.1f}' width='10' height='10' fill='{colour_of(version)}'/>"
        )
        parts.append(svg_text(left + 14, y + 9, str(version), INK))
    return parts


def spacing(end: float) -> float:
    """Seconds between lines: 1, 2 or 5 times a power of ten, at most 12 lines."""
    sizes = (float(f"{k}e{e}") for e in range(-6, 9) for k in WIDTHS)
    return next(s for s in sizes if end <= 12 * s)
