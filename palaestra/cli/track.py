"""`palaestra track`: sends the metrics of a finished or stopped run to trackers."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from palaestra.errors import Fault, UserError
from palaestra.store import columns
from palaestra.store.folder import is_step, read_run, records
from palaestra.trackers.base import Tracker, describe_run, numbers_of
from palaestra.trackers.registry import makers

PAGES = ("report.html", "curve.png")


def run(arguments: argparse.Namespace) -> dict[str, Any]:
    make, sent = makers(arguments.to), {}
    for folder in tracked_folders(Path(arguments.run)):
        for name, maker in make.items():
            try:
                lines = send(folder, maker())
            except (Exception, SystemExit) as error:  # a library may mean to end the process
                reason = f"{type(error).__name__}: {error}".splitlines()[0]
                raise Fault("tracker", f"{name}: {reason}") from error
            sent.setdefault(name, {})[describe_run(folder)["name"]] = lines
            if not arguments.json:
                print(f"{folder}: {lines} lines of metrics.jsonl sent to {name}")
    return {"run": arguments.run, "sent": sent}


def tracked_folders(run: Path) -> list[Path]:
    """The folder of a run, or the folders of a pipeline's parts in order."""
    whole = read_run(run)
    if (run / "metrics.jsonl").is_file():
        return [run]
    parts = [run / name for name in whole.parts]
    parts = parts or sorted(run.iterdir(), key=lambda p: p.stat().st_mtime)
    parts = [p for p in parts if (p / "metrics.jsonl").is_file()]
    if not parts:
        raise UserError(f"{run} has no metrics.jsonl: the run has not begun")
    return parts


def send(folder: Path, tracker: Tracker) -> int:
    """Sends a run to a tracker as the run itself would, and returns the number of lines."""
    tracker.start(describe_run(folder))
    lines = records(folder / "metrics.jsonl")
    for line in lines:
        file = columns.path(folder, line["step"])
        if is_step(line) and file.is_file():
            tracker.episodes(line["step"], file)
        tracker.log(line["step"], numbers_of(line))
    summary = read_run(folder).summary
    tracker.finish(summary, [p for name in PAGES if summary and (p := folder / name).is_file()])
    return len(lines)
