"""Pictures of runs: learning curves, recipes compared, what a method does to tokens. Keys stand
beside the data.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from palaestra.ends import HELD_OUT as HELD_OUT_NAMES
from palaestra.ends import SHARES, HeldOutKind
from palaestra.stats import Interval, mean_interval, share_of_runs, t_quantile
from palaestra.store.folder import evaluations_of
from palaestra.view.drawing import (
    DASHES,
    HELD_OUT,
    INK,
    MARKERS,
    MUTED,
    PALETTE,
    PAPER,
    POINT,
    POINTS,
    TRAIN,
    Metrics,
    drawing_style,
    entropy_metric,
    inline,
    main_metric,
    percent,
    save,
    series,
    short_number,
    smooth,
    thousands,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

WIDE, NARROW = (9.0, 4.7), (4.2, 7.2)  # inches

Evaluations = Sequence[tuple[float, Interval]]


# ---- one run


def curve(
    metrics: Metrics,
    path: str | Path,
    *,
    evaluations: Evaluations = (),
    of: HeldOutKind = "accuracy",
    title: str = "",
) -> None:
    """The learning curve of a run: training reward and evaluations, answer length, entropy or
    truncation; where no answer is judged the loss, and what pairs say. `of`: what evaluations
    measure, "accuracy" or "reward".
    """
    with drawing_style():
        save(_curve(metrics, evaluations, of, title, WIDE), path)


def curve_svg(
    metrics: Metrics,
    *,
    evaluations: Evaluations = (),
    of: HeldOutKind = "accuracy",
    narrow: bool = False,
) -> str:
    """The same picture without its title, as SVG for the inside of a page; see `drawing.inline`."""
    with drawing_style():
        return inline(
            _curve(metrics, evaluations, of, "", NARROW if narrow else WIDE), salt=f"curve{narrow}"
        )


def _curve(
    metrics: Metrics,
    evaluations: Evaluations,
    of: HeldOutKind,
    title: str,
    size: tuple[float, float],
) -> Figure:
    from matplotlib.figure import Figure

    evaluations = sorted(evaluations, key=lambda e: e[0])
    is_reward = (metric := main_metric(metrics)) == "reward"
    steps, reward = series(metrics, "step", metric)
    near = bool(np.all(np.abs(reward) <= 1.5)) and all(abs(e.mean) <= 1.5 for _, e in evaluations)
    shared = is_reward and near and of in ("accuracy", "reward")
    small = _small_panels(metrics)
    figure = Figure(figsize=size)
    apart = not shared and bool(evaluations)
    top = 0.85 if title else 0.5
    panels = main, *rest = _panels(figure, 1 + len(small) + apart, top, labels=apart)
    what = f"{'reward' if is_reward else 'loss'} of the training batch"
    _rewards(main, steps, reward, what)
    if evaluations:
        accuracy = main if shared else rest.pop(0)
        beside = (
            float(reward[: len(reward) // 10 + 1].mean()) if len(reward) and shared else -math.inf
        )
        # where the curve is not
        tell = percent if of in SHARES else short_number
        _evaluations(accuracy, evaluations, tell, above=beside <= evaluations[0][1].mean)
        bars = (
            "" if apart and size == WIDE else ", 95% interval"
        )  # a small panel has no room for it
        _heading(accuracy, HELD_OUT_NAMES[of] + bars, HELD_OUT, right=shared and size == WIDE)
    raised = evaluations and shared and size != WIDE
    _heading(
        main,
        what if len(steps) else "no step has finished",
        TRAIN,
        line=int(bool(raised)),
    )
    for axes, (name, label) in zip(rest, small, strict=True):
        _beside(axes, metrics, name, label)
    last = max([*steps.tolist(), *(s for s, _ in evaluations), 1.0])
    for axes in panels:
        axes.set_xlim(-0.02 * last, 1.02 * last)
        axes.locator_params(axis="x", nbins=7 if axes is main else 5, integer=True)
    if shared:
        _unit(
            main, reward, [x for _, e in evaluations for x in (e.low, e.high) if math.isfinite(x)]
        )
    if title:
        place = (0.22 / size[0], 1 - 0.2 / size[1])
        figure.text(*place, title, ha="left", va="top", fontsize=13, fontweight="bold")
    return figure


def _small_panels(metrics: Metrics) -> list[tuple[str, str]]:
    """Two metrics that stand beside the main one, with their headings: of sampled answers, else of
    recorded ones.
    """
    has = lambda name: len(series(metrics, "step", name)[1]) > 0
    of_records = [
        ("epsilon", "privacy spent, epsilon"),
        ("margin", "margin of the pairs"),
        ("preferred", "pairs ranked right"),
        ("ranked", "pairs ranked right"),
        ("grad_norm", "norm of the gradient"),
        ("seconds", "seconds of training"),
    ]
    known = [x for x in of_records if has(x[0])][:2]
    if known and not has("length"):
        return known
    third = (entropy_metric(metrics), "entropy, nats a token")
    return [
        ("length", "answer length, tokens"),
        third if has(third[0]) else ("truncated", "answers cut off"),
    ]


def _beside(axes: Axes, metrics: Metrics, name: str, label: str) -> None:
    """A small panel with one metric."""
    _rewards(axes, *series(metrics, "step", name), label, colour=MUTED)
    _heading(axes, label, INK)
    if name == "truncated":
        top = max(0.05, axes.get_ylim()[1])
        axes.set_ylim(-0.03 * top, top)
        axes.yaxis.set_major_formatter(lambda v, _: f"{100 * v:g}%")


def _panels(figure: Figure, n: int, top: float, labels: bool) -> list[Axes]:
    """One large panel, the others beside it, or below it in a narrow picture, with room for
    `labels` on the right of what is beside it. Inches; a fixed layout is quick.
    """
    width, height = figure.get_size_inches()
    left, bottom, side, gap = 0.5, 0.55, 0.62, 0.55
    tall = height - top - bottom
    if width > height:
        wide = 0.6 * width - left
        each = (tall - gap * (n - 2)) / max(n - 1, 1)
        x = left + wide + side + 0.5
        boxes = [
            (left, bottom, wide, tall),
            *(
                (x, bottom + i * (each + gap), width - x - (side if labels else 0.2), each)
                for i in reversed(range(n - 1))
            ),
        ]
    else:
        each = (tall - gap * (n - 1)) / (n + 1)
        stacked = [
            (left, bottom + i * (each + gap), width - left - side, each)
            for i in reversed(range(n - 1))
        ]
        boxes = [(left, height - top - 2 * each, width - left - side, 2 * each), *stacked]
    panel_axes = [
        figure.add_axes((x / width, y / height, w / width, h / height)) for x, y, w, h in boxes
    ]
    for i, axes in enumerate(panel_axes):
        lowest = i == n - 1 or (i == 0 and width > height)
        axes.tick_params(labelbottom=lowest)
        axes.set_xlabel("step" if lowest else "")
    return panel_axes


def _write(
    axes: Axes, text: str, at: tuple[float, float], offset: tuple[float, float], **style: Any
) -> None:
    """A text at an offset in points from a place."""
    axes.annotate(text, at, offset, textcoords="offset points", **style)


def _heading(axes: Axes, text: str, colour: str, line: int = 0, right: bool = False) -> None:
    weight, side = ("normal" if colour == INK else "bold"), ("right" if right else "left")
    place: dict[str, Any] = {"xycoords": "axes fraction", "ha": side, "va": "bottom"}
    _write(
        axes, text, (int(right), 1), (0, 7 + 15 * line), color=colour, fontweight=weight, **place
    )


def _rewards(axes: Axes, x_N: np.ndarray, y_N: np.ndarray, what: str, colour: str = TRAIN) -> None:
    """Each step as a light point that tells its number, their course as a line."""
    look: dict[str, Any] = {"color": colour, "alpha": 0.28, "markersize": 3.2, "markeredgewidth": 0}
    axes.plot(x_N, y_N, "o", clip_on=False, gid=f"{POINTS}{what}", **look)
    axes.plot(x_N, smooth(y_N), color=colour, linewidth=2.2, solid_capstyle="round")
    axes.margins(y=0.12)
    axes.locator_params(axis="y", nbins=5)


def _evaluations(
    axes: Axes, evaluations: Evaluations, tell: Callable[[float], str], above: bool
) -> None:
    """Points with intervals; the first and the last tell their value, the last one outside of the
    panel.
    """
    course = [(step, e.mean) for step, e in evaluations]
    axes.plot(
        *zip(*course, strict=True),
        color=HELD_OUT,
        linewidth=1.2,
        alpha=0.35 if len(course) > 2 else 0,
        zorder=3,
    )
    for step, e in evaluations:
        ends = np.array([[e.mean - e.low], [e.high - e.mean]])
        drawn = axes.errorbar(
            [step], [e.mean], yerr=ends if np.isfinite(ends).all() else None, fmt="o",
            color=HELD_OUT, markersize=6.5,
            markeredgecolor=PAPER, markeredgewidth=0.9, elinewidth=2, capsize=0, zorder=5,
            clip_on=False,
        )  # fmt: skip
        caption = f"{tell(e.mean)} held out, 95% interval {tell(e.low)} to {tell(e.high)}"
        drawn.lines[0].set_gid(f"{POINT}step {step:g}: {caption}")
    style: dict[str, Any] = {"color": HELD_OUT, "fontweight": "bold", "fontsize": 11, "ha": "left"}
    (first, before), (last, after) = evaluations[0], evaluations[-1]
    _write(axes, tell(after.mean), (last, after.mean), (9, 0), va="center", **style)
    if first < last:
        va, rise = ("bottom", 2) if above else ("top", -2)
        _write(axes, tell(before.mean), (first, before.mean), (9, rise), va=va, **style)


def _unit(axes: Axes, reward_N: np.ndarray, ends: Sequence[float]) -> None:
    """The whole scale from 0 to 1 where everything lies on it, so that heights can be compared
    between runs.
    """
    values = [*reward_N.tolist(), *ends]
    if values and min(values) >= 0 and max(values) <= 1:
        axes.set_ylim(-0.02, 1.04)


# ---- several recipes


def compare(
    runs: Mapping[str, Sequence[Metrics]],
    path: str | Path,
    *,
    of: HeldOutKind = "accuracy",
    title: str = "",
) -> None:
    """Recipes over sampled tokens: mean over seeds with its 95% band; beside it where the runs
    ended, which is the key.

    `runs`: by recipe, the records of metrics.jsonl of each seed. Ends are evaluations, "accuracy" or
    "reward" as `of` says, else training rewards.
    """
    from matplotlib.figure import Figure

    with drawing_style():
        figure = Figure(figsize=(WIDE[0], max(4.2, 1.6 + 0.42 * len(runs))), layout="constrained")
        left, right = figure.subplots(1, 2, width_ratios=(1.7, 1))
        evaluated = all(evaluations_of(run) for seeds in runs.values() for run in seeds)
        for i, (name, seeds) in enumerate(runs.items()):
            _band(left, seeds, i)
            ends = [_end(run, evaluated) for run in seeds]
            problems = evaluations_of(seeds[0])[-1][1].n if evaluated and of in SHARES else 0
            _row(right, name, len(runs) - 1 - i, ends, i, problems)
        left.set_title("reward of the training batch", color=INK)
        left.set_xlabel("sampled tokens")
        left.xaxis.set_major_formatter(lambda v, _: thousands(v))
        left.locator_params(axis="both", nbins=6)
        right.set_title(
            f"{HELD_OUT_NAMES[of]} at the end" if evaluated else "training reward at the end",
            color=INK,
        )
        right.set_yticks([])
        right.grid(False)
        right.set_ylim(-0.6, len(runs) - 0.3)
        right.xaxis.set_major_formatter(
            lambda v, _: f"{100 * v:g}%" if evaluated and of in SHARES else f"{v:g}"
        )
        right.locator_params(axis="x", nbins=5)
        seeds = sorted({len(s) for s in runs.values()})
        caption = (
            f"Mean of {' or '.join(map(str, seeds))} seeds; bands and bars are 95% t intervals, "
            "small dots single runs."
        )
        figure.supxlabel(caption, x=0.012, ha="left", fontsize=8.5, color=MUTED)
        if title:
            figure.suptitle(title, x=0.012, ha="left", fontsize=13, fontweight="bold")
        save(figure, path)


def _look(i: int) -> dict[str, Any]:
    """Colour, dash and marker of the recipe number i: no two are equal before the 24th."""
    return {
        "color": PALETTE[i % len(PALETTE)],
        "marker": MARKERS[i % len(MARKERS)],
        "linestyle": DASHES[i // len(PALETTE) % len(DASHES)],
    }


def _band(axes: Axes, seeds: Sequence[Metrics], i: int) -> None:
    curves = [
        (x, smooth(y))
        for x, y in (series(run, "sampled_tokens", "reward") for run in seeds)
        if len(x)
    ]
    if not curves:
        return
    grid_N = np.linspace(max(x[0] for x, _ in curves), min(x[-1] for x, _ in curves), 200)
    y_SN = np.stack([np.interp(grid_N, x, y) for x, y in curves])
    mean_N, look = y_SN.mean(0), _look(i)
    if len(curves) > 1:
        half_N = t_quantile(0.975, len(curves) - 1) * y_SN.std(0, ddof=1) / math.sqrt(len(curves))
        axes.fill_between(
            grid_N, mean_N - half_N, mean_N + half_N, color=look["color"], alpha=0.13, linewidth=0
        )
    axes.plot(
        grid_N,
        mean_N,
        linewidth=2.2,
        markevery=[-1],
        markersize=7,
        markeredgecolor=PAPER,
        clip_on=False,
        zorder=4,
        **look,
    )
    low, high = axes.get_ylim() if i else (math.inf, -math.inf)
    pad = 0.08 * (float(np.ptp(y_SN)) or 1.0)
    axes.set_ylim(
        min(low, y_SN.min() - pad), max(high, y_SN.max() + pad)
    )  # of the runs: a band of two seeds would dwarf them


def _end(run: Metrics, evaluated: bool) -> float:
    if evaluated:
        return evaluations_of(run)[-1][1].mean
    reward = series(run, "step", "reward")[1]
    return float(smooth(reward)[-1]) if len(reward) else math.nan


def _row(axes: Axes, name: str, y: float, ends: Sequence[float], i: int, problems: int) -> None:
    """`problems`: of which ends are shares; 0 = they are no shares."""
    look, known = _look(i), [x for x in ends if math.isfinite(x)]
    interval = share_of_runs(known, problems) if problems else mean_interval(known)
    axes.plot(
        known,
        [y - 0.16] * len(known),
        "o",
        color=look["color"],
        alpha=0.5,
        markersize=3.5,
        markeredgewidth=0,
    )
    if math.isfinite(interval.high):
        axes.plot(
            [interval.low, interval.high],
            [y, y],
            color=look["color"],
            linewidth=2,
            alpha=0.9,
            linestyle=look["linestyle"],
        )
    axes.plot(
        [interval.mean],
        [y],
        color=look["color"],
        marker=look["marker"],
        markersize=8,
        markeredgecolor=PAPER,
        zorder=4,
    )
    style: dict[str, Any] = {
        "xycoords": ("axes fraction", "data"),
        "va": "bottom",
        "color": look["color"],
    }
    _write(axes, name, (0, y), (0, 6), ha="left", fontweight="bold", **style)
    mean = (percent if problems else short_number)(interval.mean)
    _write(axes, mean, (1, y), (0, 6), ha="right", fontweight="bold", **style)


# ---- what a method does to tokens


def token_weights(
    groups: Sequence[Sequence[Mapping[str, Any]]],
    result: Mapping[str, Any],
    path: str | Path,
    *,
    title: str = "",
) -> None:
    """What multiplies the gradient of each token's log-prob: a row a trajectory, blue pushes up,
    orange pushes down.
    """
    from matplotlib.figure import Figure
    from matplotlib.patches import FancyBboxPatch

    rows = [(g, i) for g, group in enumerate(groups) for i in range(len(group))]
    weights = [[float(w) for w in result["token_weights"][g][i]] for g, i in rows]
    largest = max((abs(w) for row in weights for w in row), default=0.0) or 1.0
    longest = max(map(len, weights), default=1)
    with drawing_style():
        figure = Figure(
            figsize=(WIDE[0], 1.1 + 0.34 * (len(rows) + 0.6 * len(groups))), layout="constrained"
        )
        axes = figure.add_subplot()
        axes.axis("off")
        y = 0.0
        for (g, i), row in zip(rows, weights, strict=True):
            y -= 1.6 if i == 0 and g else 1.0
            for t, w in enumerate(row):
                box = FancyBboxPatch(
                    (t + 0.06, y + 0.1),
                    0.88,
                    0.8,
                    boxstyle="round,pad=0,rounding_size=0.12",
                    linewidth=0,
                )
                box.set_facecolor(diverging_colour(w / largest))
                axes.add_patch(box)
            reward = groups[g][i].get("reward", groups[g][i].get("turn_rewards"))
            side = {"va": "center", "color": INK}
            _write(
                axes, f"reward {short_number(reward)}", (0, y + 0.5), (-8, 0), ha="right", **side
            )
            caption = (
                f"advantage {short_number(result['advantages'][g][i])},  weights "
                f"{short_number(row)}"
            )
            _write(axes, caption, (longest, y + 0.5), (8, 0), ha="left", **side)
        axes.set_xlim(-0.02, longest + 0.02)
        axes.set_ylim(y - 0.1, 0.1)
        if title:
            figure.suptitle(
                f"{title}: weight of each token", x=0.012, ha="left", fontsize=13, fontweight="bold"
            )
        save(figure, path)


def diverging_colour(x: float) -> tuple[float, float, float]:
    """-1 orange, 0 nearly grey, 1 blue."""
    ends = {True: (0.12, 0.47, 0.71), False: (0.84, 0.38, 0.11)}[x >= 0]
    share = min(1.0, abs(x)) ** 0.7
    r, g, b = (0.93 * (1 - share) + end * share for end in ends)
    return r, g, b
