"""Pictures of runs. Colours are told apart by colour-blind readers; keys stand beside the data, never over it.

`.png` is drawn for 900 pixels of width at double resolution. `svg` gives a picture that takes its colours from the page it is in.
"""

from __future__ import annotations

import io
import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from palaestra.ledger.statistics import Interval, mean_interval, t_quantile

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

INK, MUTED, LINE, PAPER = "#1f2430", "#6a7080", "#e3e6ea", "#fefefe"
TRAIN, HELD_OUT = "#1f77b4", "#d5601b"
PALETTE = ("#1f77b4", "#d5601b", "#1b9e77", "#a5559b", "#c79a12", "#58a8d8", "#7a5c3e", "#6a7080")  # after Okabe & Ito (2008)
MARKERS = "osD^vPX*"
DASHES = ("-", (0, (5, 1.5)), (0, (1.5, 1)))
WIDE, NARROW = (9.0, 4.7), (4.2, 7.2)  # inches
STYLE = {
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
}

Metrics = Sequence[Mapping[str, Any]]
Evaluations = Sequence[tuple[float, Interval]]


# ---- one run


def curve(metrics: Metrics, path: str | Path, *, evaluations: Evaluations = (), title: str = "") -> None:
    """The learning curve of a run: training reward and held-out accuracy, answer length, entropy or truncation."""
    with _styled():
        _save(_curve(metrics, evaluations, title, WIDE), path)


def curve_svg(metrics: Metrics, *, evaluations: Evaluations = (), narrow: bool = False) -> str:
    """The same picture without its title for the inside of a page, whose variables --ink, --muted, --line and --paper colour it."""
    with _styled():
        return _inline(_curve(metrics, evaluations, "", NARROW if narrow else WIDE), salt=f"curve{narrow}")


def evaluations_of(records: Metrics) -> list[tuple[float, Interval]]:
    """The evaluation records of a metrics.jsonl."""
    return [(float(r["step"]), Interval.of(r["evaluation"])) for r in records if isinstance(r.get("evaluation"), Mapping)]


def _curve(metrics: Metrics, evaluations: Evaluations, title: str, size: tuple[float, float]) -> Figure:
    from matplotlib.figure import Figure

    steps, reward = series(metrics, "step", "reward")
    shared = bool(np.all(np.abs(reward) <= 1.5)) and all(abs(e.mean) <= 1.5 for _, e in evaluations)
    third = ("entropy", "entropy, nats a token") if len(series(metrics, "step", "entropy")[1]) else ("truncated", "answers cut off")
    small = [("length", "answer length, tokens"), third]
    figure = Figure(figsize=size)
    main, *rest = _panels(figure, 1 + len(small) + (not shared and bool(evaluations)), top=0.85 if title else 0.5)
    _rewards(main, steps, reward)
    if evaluations:
        accuracy = main if shared else rest.pop(0)
        _evaluations(accuracy, evaluations, above=not (len(reward) and shared and reward[0] > evaluations[0][1].mean))
        _heading(accuracy, "held-out accuracy, 95% interval", HELD_OUT, right=shared and size == WIDE)
    raised = evaluations and shared and size != WIDE
    _heading(main, "reward of the training batch" if len(steps) else "no step has finished", TRAIN, line=int(bool(raised)))
    for axes, (name, label) in zip(rest, small, strict=True):
        _rewards(axes, *series(metrics, "step", name), colour=MUTED)
        _heading(axes, label, INK)
        if name == "truncated":
            axes.yaxis.set_major_formatter(lambda v, _: f"{100 * v:g}%")
    last = max([*steps.tolist(), *(s for s, _ in evaluations), 1.0])
    for axes in (main, *rest):
        axes.set_xlim(-0.02 * last, 1.02 * last)
    if shared:
        _unit(main, reward, [x for _, e in evaluations for x in (e.low, e.high) if math.isfinite(x)])
    if title:
        figure.text(0.22 / size[0], 1 - 0.2 / size[1], title, ha="left", va="top", fontsize=13, fontweight="bold")
    return figure


def _panels(figure: Figure, n: int, top: float) -> list[Axes]:
    """One large panel, the others beside it, or below it where the picture is narrow. Inches; the layout is fixed, so it is quick."""
    width, height = figure.get_size_inches()
    left, bottom, side, gap = 0.5, 0.55, 0.62, 0.55
    tall = height - top - bottom
    if width > height:
        wide = 0.6 * width - left
        each = (tall - gap * (n - 2)) / (n - 1)
        x = left + wide + side + 0.5
        boxes = [(left, bottom, wide, tall), *((x, bottom + i * (each + gap), width - x - 0.2, each) for i in reversed(range(n - 1)))]
    else:
        each = (tall - gap * (n - 1)) / (n + 1)
        stacked = [(left, bottom + i * (each + gap), width - left - side, each) for i in reversed(range(n - 1))]
        boxes = [(left, height - top - 2 * each, width - left - side, 2 * each), *stacked]
    found = [figure.add_axes((x / width, y / height, w / width, h / height)) for x, y, w, h in boxes]
    for i, axes in enumerate(found):
        lowest = i == n - 1 or (i == 0 and width > height)
        axes.tick_params(labelbottom=lowest)
        axes.set_xlabel("step" if lowest else "")
    return found


def _heading(axes: Axes, text: str, colour: str, line: int = 0, right: bool = False) -> None:
    style = {"color": colour, "fontweight": "normal" if colour == INK else "bold", "va": "bottom", "textcoords": "offset points"}
    axes.annotate(text, (int(right), 1), (0, 7 + 15 * line), xycoords="axes fraction", ha="right" if right else "left", **style)


def _rewards(axes: Axes, x_N: np.ndarray, y_N: np.ndarray, colour: str = TRAIN) -> None:
    """Each step as a light point, their course as a line."""
    axes.plot(x_N, y_N, "o", color=colour, alpha=0.28, markersize=3.2, markeredgewidth=0, clip_on=False)
    axes.plot(x_N, smoothed(y_N), color=colour, linewidth=2.2, solid_capstyle="round")
    axes.margins(y=0.12)
    axes.locator_params(axis="y", nbins=5)


def _evaluations(axes: Axes, evaluations: Evaluations, above: bool) -> None:
    """Points with intervals; the first and the last tell their value, the last one outside of the panel."""
    for step, e in evaluations:
        ends = np.array([[e.mean - e.low], [e.high - e.mean]])
        axes.errorbar(
            [step], [e.mean], yerr=ends if np.isfinite(ends).all() else None, fmt="o", color=HELD_OUT, markersize=7.5,
            markeredgecolor=PAPER, markeredgewidth=1.2, elinewidth=2, capsize=0, zorder=5, clip_on=False,
        )  # fmt: skip
    style = {"color": HELD_OUT, "fontweight": "bold", "fontsize": 11, "textcoords": "offset points", "ha": "left"}
    (first, before), (last, after) = evaluations[0], evaluations[-1]
    axes.annotate(percent(after.mean), (last, after.mean), (9, 0), va="center", **style)
    if first < last:
        axes.annotate(percent(before.mean), (first, before.mean), (9, 2 if above else -2), va="bottom" if above else "top", **style)


def _unit(axes: Axes, reward_N: np.ndarray, ends: Sequence[float]) -> None:
    """The whole scale from 0 to 1 where everything lies on it, so that heights can be compared between runs."""
    found = [*reward_N.tolist(), *ends]
    if found and min(found) >= 0 and max(found) <= 1:
        axes.set_ylim(-0.02, 1.04)


# ---- several recipes


def compare(runs: Mapping[str, Sequence[Metrics]], path: str | Path, *, title: str = "") -> None:
    """Recipes over sampled tokens: mean over seeds with its 95% band; beside it where each run ended, which is also the key.

    `runs`: by recipe, the records of metrics.jsonl of each seed. Ends are held-out accuracies, or the last training rewards.
    """
    from matplotlib.figure import Figure

    with _styled():
        figure = Figure(figsize=(WIDE[0], max(4.2, 1.6 + 0.42 * len(runs))), layout="constrained")
        left, right = figure.subplots(1, 2, width_ratios=(1.7, 1))
        judged = all(evaluations_of(run) for seeds in runs.values() for run in seeds)
        for i, (name, seeds) in enumerate(runs.items()):
            _band(left, seeds, i)
            ends = [_end(run, judged) for run in seeds]
            _row(right, name, len(runs) - 1 - i, ends, i)
        left.set_title("reward of the training batch", color=INK)
        left.set_xlabel("sampled tokens")
        left.xaxis.set_major_formatter(lambda v, _: thousands(v))
        left.locator_params(axis="both", nbins=6)
        right.set_title("held-out accuracy at the end" if judged else "training reward at the end", color=INK)
        right.set_yticks([])
        right.grid(False)
        right.set_ylim(-0.6, len(runs) - 0.3)
        right.xaxis.set_major_formatter(lambda v, _: f"{100 * v:g}%" if judged else f"{v:g}")
        right.locator_params(axis="x", nbins=5)
        seeds = sorted({len(s) for s in runs.values()})
        figure.supxlabel(
            f"Mean of {' or '.join(map(str, seeds))} seeds; bands and bars are 95% t intervals, small dots single runs.",
            x=0.012, ha="left", fontsize=8.5, color=MUTED,
        )  # fmt: skip
        if title:
            figure.suptitle(title, x=0.012, ha="left", fontsize=13, fontweight="bold")
        _save(figure, path)


def _look(i: int) -> dict[str, Any]:
    """Colour, dash and marker of the recipe number i: no two are equal before the 24th."""
    return {"color": PALETTE[i % len(PALETTE)], "marker": MARKERS[i % len(MARKERS)], "linestyle": DASHES[i // len(PALETTE) % len(DASHES)]}


def _band(axes: Axes, seeds: Sequence[Metrics], i: int) -> None:
    curves = [(x, smoothed(y)) for x, y in (series(run, "sampled_tokens", "reward") for run in seeds) if len(x)]
    if not curves:
        return
    grid_N = np.linspace(max(x[0] for x, _ in curves), min(x[-1] for x, _ in curves), 200)
    y_SN = np.stack([np.interp(grid_N, x, y) for x, y in curves])
    mean_N, look = y_SN.mean(0), _look(i)
    if len(curves) > 1:
        half_N = t_quantile(0.975, len(curves) - 1) * y_SN.std(0, ddof=1) / math.sqrt(len(curves))
        axes.fill_between(grid_N, mean_N - half_N, mean_N + half_N, color=look["color"], alpha=0.13, linewidth=0)
    axes.plot(grid_N, mean_N, linewidth=2.2, markevery=[-1], markersize=7, markeredgecolor=PAPER, clip_on=False, zorder=4, **look)
    low, high = axes.get_ylim() if i else (math.inf, -math.inf)
    pad = 0.08 * (float(np.ptp(y_SN)) or 1.0)
    axes.set_ylim(min(low, y_SN.min() - pad), max(high, y_SN.max() + pad))  # of the runs: a band of two seeds would dwarf them


def _end(run: Metrics, judged: bool) -> float:
    if judged:
        return evaluations_of(run)[-1][1].mean
    reward = series(run, "step", "reward")[1]
    return float(smoothed(reward)[-1]) if len(reward) else math.nan


def _row(axes: Axes, name: str, y: float, ends: Sequence[float], i: int) -> None:
    look, known = _look(i), [x for x in ends if math.isfinite(x)]
    found = mean_interval(known)
    axes.plot(known, [y - 0.16] * len(known), "o", color=look["color"], alpha=0.5, markersize=3.5, markeredgewidth=0)
    if math.isfinite(found.high):
        axes.plot([found.low, found.high], [y, y], color=look["color"], linewidth=2, alpha=0.9, linestyle=look["linestyle"])
    axes.plot([found.mean], [y], color=look["color"], marker=look["marker"], markersize=8, markeredgecolor=PAPER, zorder=4)
    style = {"textcoords": "offset points", "va": "bottom", "color": look["color"], "fontweight": "bold"}
    axes.annotate(name, (0, y), (0, 6), xycoords=("axes fraction", "data"), ha="left", **style)
    axes.annotate(percent(found.mean), (1, y), (0, 6), xycoords=("axes fraction", "data"), ha="right", **style)


# ---- what a method does to tokens


def token_weights(groups: Sequence[Sequence[Mapping[str, Any]]], result: Mapping[str, Any], path: str | Path, *, title: str = "") -> None:
    """What multiplies the gradient of each token's log-prob: a row a trajectory, blue pushes up, orange pushes down."""
    from matplotlib.figure import Figure
    from matplotlib.patches import FancyBboxPatch

    rows = [(g, i) for g, group in enumerate(groups) for i in range(len(group))]
    weights = [[float(w) for w in result["token_weights"][g][i]] for g, i in rows]
    largest = max((abs(w) for row in weights for w in row), default=0.0) or 1.0
    longest = max(map(len, weights), default=1)
    with _styled():
        figure = Figure(figsize=(WIDE[0], 1.1 + 0.34 * (len(rows) + 0.6 * len(groups))), layout="constrained")
        axes = figure.add_subplot()
        axes.axis("off")
        y = 0.0
        for (g, i), row in zip(rows, weights, strict=True):
            y -= 1.6 if i == 0 and g else 1.0
            for t, w in enumerate(row):
                box = FancyBboxPatch((t + 0.06, y + 0.1), 0.88, 0.8, boxstyle="round,pad=0,rounding_size=0.12", linewidth=0)
                box.set_facecolor(diverging(w / largest))
                axes.add_patch(box)
            reward = groups[g][i].get("reward", groups[g][i].get("turn_rewards"))
            side = {"va": "center", "color": INK, "textcoords": "offset points"}
            axes.annotate(f"reward {short(reward)}", (0, y + 0.5), (-8, 0), ha="right", **side)
            told = f"advantage {short(result['advantages'][g][i])},  weights {short(row)}"
            axes.annotate(told, (longest, y + 0.5), (8, 0), ha="left", **side)
        axes.set_xlim(-0.02, longest + 0.02)
        axes.set_ylim(y - 0.1, 0.1)
        if title:
            figure.suptitle(f"{title}: weight of each token", x=0.012, ha="left", fontsize=13, fontweight="bold")
        _save(figure, path)


def diverging(x: float) -> tuple[float, float, float]:
    """-1 orange, 0 nearly grey, 1 blue."""
    ends = {True: (0.12, 0.47, 0.71), False: (0.84, 0.38, 0.11)}[x >= 0]
    share = min(1.0, abs(x)) ** 0.7
    r, g, b = (0.93 * (1 - share) + end * share for end in ends)
    return r, g, b


# ---- numbers and files


def series(records: Metrics, x: str, y: str) -> tuple[np.ndarray, np.ndarray]:
    """The records that have both numbers, as arrays."""
    pairs = [(r[x], r[y]) for r in records if _finite(r.get(x)) and _finite(r.get(y))]
    return np.array([a for a, _ in pairs], np.float64), np.array([b for _, b in pairs], np.float64)


def _finite(found: Any) -> bool:
    return isinstance(found, (int, float)) and math.isfinite(found)


def smoothed(y_N: np.ndarray) -> np.ndarray:
    """Gaussian mean around each step, as wide as a thirtieth of the run: it does not lag behind, as running means do."""
    n = len(y_N)
    width = max(n / 30, 0.5)
    distance_NN = np.subtract.outer(np.arange(n), np.arange(n)) / width
    weight_NN = np.exp(-0.5 * distance_NN**2)
    return weight_NN @ y_N / weight_NN.sum(1)


def percent(x: float) -> str:
    """Whole percents, tenths below 10% and above 90%, where they matter."""
    if not math.isfinite(x):
        return "?"
    tenths = 0 < x < 0.0995 or 0.9 < x < 1
    return f"{100 * x:.{1 if tenths else 0}f}%"


def thousands(x: float) -> str:
    return f"{x / 1e6:g}M" if abs(x) >= 1e6 else f"{x / 1e3:g}k" if abs(x) >= 1e3 else f"{x:g}"


def short(x: Any) -> str:
    """A number; of a list its one value or its ends."""
    if isinstance(x, Sequence) and not isinstance(x, str):
        low, high = (min(x), max(x)) if x else (0.0, 0.0)
        return short(low) if high - low < 1e-9 else f"{short(low)} to {short(high)}"
    return f"{x:.3g}".replace("-", "−") if isinstance(x, (int, float)) else str(x)


@contextmanager
def _styled() -> Iterator[None]:
    import matplotlib

    with matplotlib.rc_context(STYLE):
        yield


def _save(figure: Figure, path: str | Path) -> None:
    figure.savefig(path, dpi=200)


def _inline(figure: Figure, salt: str) -> str:
    """SVG for the inside of a page: no header, no size, the page's colours."""
    import matplotlib

    file = io.StringIO()
    with matplotlib.rc_context({"svg.hashsalt": salt, "savefig.transparent": True}):
        figure.savefig(file, format="svg", metadata={"Date": None, "Creator": None, "Format": None, "Type": None})
    svg = file.getvalue()
    svg = svg[svg.index("<svg") :]
    for colour, name in ((INK, "ink"), (MUTED, "muted"), (LINE, "line"), (PAPER, "paper")):
        svg = svg.replace(colour, f"var(--{name})")
    return svg
