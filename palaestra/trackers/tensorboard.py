"""Event files that TensorBoard reads, written by tensorboardX. Episodes stay in the run folder."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from palaestra.trackers.base import library


class TensorBoard:
    """Writes into `tensorboard/` of the run folder, or into `folder`, by the name of the run."""

    def __init__(self, folder: str = ""):
        self.folder = folder
        self.library = library("tensorboardX", "palaestra[tensorboard]")
        self.writer: Any = None

    def start(self, run: Mapping[str, Any]) -> None:
        place = Path(self.folder) / run["name"] if self.folder else run["folder"] / "tensorboard"
        # what was written of steps that a resumed run makes again is hidden
        purge = run["step"] + 1 if run["step"] else None
        self.writer = self.library.SummaryWriter(str(place), purge_step=purge)
        if not run["step"]:
            self.writer.add_text("settings", table(run["config"]), 0)

    def log(self, step: int, numbers: Mapping[str, float]) -> None:
        for name, number in numbers.items():
            self.writer.add_scalar(name, number, step)

    def episodes(self, step: int, file: Path) -> None:
        pass

    def finish(self, summary: Mapping[str, Any], files: Sequence[Path]) -> None:
        self.writer.close()


def table(config: Mapping[str, Any]) -> str:
    """Settings as a table in Markdown."""
    rows = [f"| {k} | {json.dumps(v)} |" for k, v in config.items()]
    return "\n".join(["| setting | value |", "| --- | --- |", *rows])
