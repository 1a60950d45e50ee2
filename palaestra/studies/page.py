"""The files of a study in its folder: study.html for people, study.json and items.jsonl for programs."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np

from palaestra.context import Context
from palaestra.markdown import render
from palaestra.stats import Interval
from palaestra.store.checkpoint import jsonable, write_atomic
from palaestra.store.folder import read_config
from palaestra.studies.report import StudyChart, StudyReport
from palaestra.studies.training import PROBLEM, training_remark
from palaestra.types import Result
from palaestra.view.drawing import (
    DASHES,
    MARKERS,
    PALETTE,
    drawing_style,
    inline,
    percent,
    save,
    thousands,
)

PAGE, REPORT, ITEMS = "study.html", "study.json", "items.jsonl"
MOST_TICKS = 12


def publish(ctx: Context, report: StudyReport) -> Result:
    """Writes a report into the folder of the run, if it has one, and its numbers into the log.

    Returns:
        The result of the program: its numbers are the metrics, with the `findings`.
    """
    numbers = {
        k: {"of": "reward", **x.json()} if isinstance(x, Interval) else x
        for k, x in report.numbers.items()
    }
    report = replace(report, protocol={**origin(ctx), **report.protocol})
    ctx.log({k: x.mean if isinstance(x, Interval) else x for k, x in report.numbers.items()})
    artifacts: dict[str, str] = {}
    if ctx.out is not None:
        write_study(ctx.folder, report)
        artifacts = {"study": str(ctx.folder / PAGE)}
    metrics = {**numbers, "findings": list(report.findings), "sampled_tokens": ctx.sampled_tokens}
    return Result(metrics=jsonable(metrics), artifacts=artifacts)


def origin(ctx: Any) -> dict[str, str]:
    """The model, the start that it is compared with, the files or the task that is measured, and what the
    run of the model was trained on, as far as they are known.
    """
    config = read_config(ctx.folder) if ctx.out is not None else {}
    problem = next((str(config[n]) for n in ("test_data", *PROBLEM) if config.get(n)), "")
    facts = {
        "model": ctx.model("policy").name,
        "start": ctx.model("base").name if "base" in ctx.models else "",
        "measured on": problem,
        "training": training_remark(ctx),
    }
    return {k: x for k, x in facts.items() if x}


def write_study(folder: Path, report: StudyReport) -> None:
    """The three files, and a picture for each chart."""
    text = "".join(json.dumps(jsonable(dict(x)), ensure_ascii=False) + "\n" for x in report.items)
    write_atomic(folder / ITEMS, text)
    whole = asdict(report)
    del whole["items"]
    write_atomic(folder / REPORT, json.dumps(jsonable(whole), indent=1, ensure_ascii=False) + "\n")
    pictures: list[dict[str, str]] = []
    for i, chart in enumerate(report.charts):
        figure = draw(chart)
        save(figure, folder / f"chart-{i + 1}.png")
        with drawing_style():
            pictures.append({"title": chart.title, "svg": inline(figure, f"study{i}")})
    page = render("study.html", report=report, pictures=pictures, items=len(report.items))
    write_atomic(folder / PAGE, page)


def draw(chart: StudyChart) -> Any:
    """The figure of a chart."""
    from matplotlib.figure import Figure

    with drawing_style():
        figure = Figure(figsize=(7.2, 3.6), layout="constrained")
        axes = figure.subplots()
        for i, line in enumerate(chart.lines):
            axes.errorbar(
                line.x,
                line.y,
                yerr=_errors(line.y, line.low, line.high),
                label=line.name,
                color=PALETTE[i % len(PALETTE)],
                marker=MARKERS[i % len(MARKERS)],
                linestyle=DASHES[i // len(PALETTE) % len(DASHES)],
                elinewidth=0.8,
                markersize=4.5,
            )
        if chart.log_x:
            axes.set_xscale("log", base=2)
            axes.xaxis.set_major_formatter(lambda x, _: f"{x:g}")  # formulas are not drawn here
            axes.minorticks_off()
        ticks = sorted({x for line in chart.lines for x in line.x})
        if 0 < len(ticks) <= MOST_TICKS and all(x == int(x) for x in ticks):
            axes.set_xticks(ticks, [thousands(x) for x in ticks])
        axes.set_xlabel(chart.x_label)
        axes.set_ylabel(chart.y_label)
        if chart.share:
            axes.set_ylim(-0.02, 1.02)
            axes.yaxis.set_major_formatter(lambda y, _: percent(max(0.0, y)))
        if len(chart.lines) > 1:
            axes.legend(frameon=False, loc="center left", bbox_to_anchor=(1.0, 0.5))
    return figure


def _errors(y: Sequence[float], low: Sequence[float], high: Sequence[float]) -> np.ndarray | None:
    """[2, N] distances to the ends of the intervals; None = there are none."""
    if not low:
        return None
    y_N, ends = np.asarray(y, np.float64), np.array([low, high], np.float64)
    return np.where(np.isfinite(ends), np.abs(ends - y_N), 0.0)
