"""How pictures of runs look: colours, numbers, files.

Colours are told apart by colour-blind readers. A `.png` is made for 900 pixels of width at double
resolution; an inline SVG takes its colours from the page that it is in.
"""

from __future__ import annotations

import io
import math
import re
import warnings
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from html import escape, unescape
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from palaestra.store.reading import number

if TYPE_CHECKING:
    from matplotlib.figure import Figure

INK, MUTED, LINE, PAPER = "#1f2430", "#6a7080", "#e3e6ea", "#fefefe"
TRAIN, HELD_OUT = "#1f77b4", "#d5601b"
# After Okabe & Ito (2008).
PALETTE = ("#1f77b4", "#d5601b", "#1b9e77", "#a5559b", "#c79a12", "#58a8d8", "#7a5c3e", "#6a7080")
MARKERS = "osD^vPXp"
DASHES = ("-", (0, (5, 1.5)), (0, (1.5, 1)))
STYLE: Any = {
    "font.family": ["DejaVu Sans"],
    "font.size": 9.5,
    "text.color": INK,
    "axes.edgecolor": LINE,
    "axes.labelcolor": MUTED,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.spines.left": False,
    "axes.grid": True,
    "axes.grid.axis": "y",
    "axes.axisbelow": True,
    "axes.titlelocation": "left",
    "axes.titlesize": 9.5,
    "axes.titlepad": 8,
    "figure.constrained_layout.h_pad": 0.09,
    "figure.constrained_layout.w_pad": 0.09,
    "grid.color": LINE,
    "grid.linewidth": 0.8,
    "xtick.color": LINE,
    "ytick.color": LINE,
    "xtick.labelcolor": MUTED,
    "ytick.labelcolor": MUTED,
    "ytick.major.size": 0,
    "figure.facecolor": PAPER,
    "axes.facecolor": "none",
    "savefig.facecolor": PAPER,
    "svg.fonttype": "none",
    "text.parse_math": False,
}

# ids of drawn lines that hold what a browser tells of their points, and the marker of a point
POINTS, POINT, MARKER = "points=", "point=", re.compile(r"<use [^>]*/>")
MOST_TOLD = 2000  # points of a line that tell their numbers; more make a page heavy

Metrics = Sequence[Mapping[str, Any]]


# ---- numbers


def series(records: Metrics, x: str, y: str) -> tuple[np.ndarray, np.ndarray]:
    """The records that have both numbers, as arrays."""
    pairs = [(r[x], r[y]) for r in records if None not in (number(r.get(x)), number(r.get(y)))]
    return np.array([a for a, _ in pairs], np.float64), np.array([b for _, b in pairs], np.float64)


def main_metric(records: Metrics) -> str:
    """What tells how steps went: the reward, or the loss where the answers are recorded and nobody
    judged them; of several learners the first one's.
    """
    names = dict.fromkeys(k for r in records for k in r)
    losses = (k for k in names if k.rpartition("/")[2] == "loss")
    return "reward" if "reward" in names else next(losses, "reward")


def entropy_metric(records: Metrics) -> str:
    """The entropy of the policy where the loss measures it, else what its sampled log-probs say of
    it.
    """
    names = {k for r in records for k in r}
    return "entropy" if "entropy" in names else "entropy_sampled"


def smooth(y_N: np.ndarray) -> np.ndarray:
    """Gaussian mean around each step, as wide as a thirtieth of the run; running means would lag
    behind.
    """
    n = len(y_N)
    width = max(n / 30, 0.5)
    distance_NN = np.subtract.outer(np.arange(n), np.arange(n)) / width
    weight_NN = np.exp(-0.5 * distance_NN**2)
    return weight_NN @ y_N / weight_NN.sum(1)


def percent(x: float) -> str:
    """Whole percents; tenths below 10% and above 98%, where they matter."""
    if not math.isfinite(x):
        return "?"
    tenths = 0 < x < 0.0995 or 0.98 < x < 1
    return f"{100 * x:.{1 if tenths else 0}f}%"


def thousands(x: float) -> str:
    return f"{x / 1e6:g}M" if abs(x) >= 1e6 else f"{x / 1e3:g}k" if abs(x) >= 1e3 else f"{x:g}"


def short_number(x: Any) -> str:
    """A number in three digits; of a list its one value or its ends."""
    if isinstance(x, Sequence) and not isinstance(x, str):
        low, high = (min(x), max(x)) if x else (0.0, 0.0)
        return (
            short_number(low)
            if high - low < 1e-9
            else f"{short_number(low)} to {short_number(high)}"
        )
    if not isinstance(x, (int, float)) or not math.isfinite(x):
        return "?"
    return f"{x + 0.0:.3g}".replace("-", "−")  # + 0.0: zero has no sign


# ---- files


@contextmanager
def drawing_style() -> Generator[None]:
    """Inside, matplotlib draws in this style."""
    import matplotlib

    with matplotlib.rc_context(STYLE), warnings.catch_warnings():
        # a name in a script that the font lacks
        warnings.filterwarnings("ignore", "Glyph .* missing")
        yield


def save(figure: Figure, path: str | Path) -> None:
    picture = io.BytesIO()
    figure.savefig(picture, dpi=200, format=Path(path).suffix[1:] or "png")
    from palaestra.store.checkpoint import write_atomic  # which imports torch

    write_atomic(Path(path), picture.getvalue())


def inline(figure: Figure, salt: str) -> str:
    """SVG for the inside of a page, whose variables (--ink, ...) colour it. `salt` keeps ids of
    pictures apart.
    """
    import matplotlib

    file = io.StringIO()
    with matplotlib.rc_context({"svg.hashsalt": salt, "savefig.transparent": True}):
        figure.savefig(
            file,
            format="svg",
            metadata={"Date": None, "Creator": None, "Format": None, "Type": None},
        )
    svg = file.getvalue()
    svg = tell_points(figure, svg[svg.index("<svg") :])
    for colour, name in (
        (INK, "ink"),
        (MUTED, "muted"),
        (LINE, "line"),
        (PAPER, "paper"),
        (TRAIN, "train"),
        (HELD_OUT, "held"),
    ):
        svg = svg.replace(colour, f"var(--{name})")
    return svg


def tell_points(figure: Figure, svg: str) -> str:
    """The picture with a title on each point of the lines whose id begins with `POINTS`, which a
    browser shows when it is pointed at; the rest of the id says what the points are of. Of an
    evaluation, drawn alone, the id has all of it, behind `POINT`.
    """
    lines = [line for axes in figure.axes for line in axes.lines]
    course = {str(line.get_gid()): line.get_xydata() for line in lines}
    head, *groups = svg.split('<g id="')
    for i, group in enumerate(groups):
        name, quote, rest = group.partition('"')
        point_lines = [unescape(name).removeprefix(POINT)] if name.startswith(POINT) else []
        if name.startswith(POINTS):
            of, xy_N2 = unescape(name), np.asarray(course[unescape(name)])
            known = xy_N2[np.isfinite(xy_N2).all(axis=1)].tolist()
            point_lines = [
                f"step {x:g}: {of.removeprefix(POINTS)} {short_number(y)}" for x, y in known
            ]
        parts = MARKER.split(rest)
        if point_lines and len(parts) == len(point_lines) + 1 and len(point_lines) <= MOST_TOLD:
            marked = zip(MARKER.findall(rest), point_lines, strict=True)
            titles = [f"{use[:-2]}><title>{escape(t)}</title></use>" for use, t in marked]
            rest = "".join(x for pair in zip(parts, [*titles, ""], strict=True) for x in pair)
        made = name.startswith((POINT, POINTS))  # which are no ids of a page that has two pictures
        groups[i] = f"<g{rest}" if made else f'<g id="{name}{quote}{rest}'
    return head + "".join(groups)


def svg_text(
    x: float, y: float, text: str, colour: str, anchor: str = "start", weight: str = "normal"
) -> str:
    """A piece of text of a hand-written SVG, at its baseline."""
    style = f"fill='{colour}' text-anchor='{anchor}' font-weight='{weight}'"
    return f"<text x='{x:.1f}' y='{y:.1f}' {style}>{escape(text)}</text>"


def duration(seconds: float) -> str:
    """1.2 s, 48 s, 2 min 31 s, 3 h 5 min."""
    if seconds < 10:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes_left = divmod(minutes, 60)
    return (
        f"{hours} h {minutes_left} min"
        if hours
        else f"{minutes} min {rest} s"
        if minutes
        else f"{rest} s"
    )
