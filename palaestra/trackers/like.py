"""Trackers with the interface of Weights & Biases: `init` gives a run, which has `log`."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from palaestra.trackers.base import PROJECT, library, numbers_of
from palaestra.trackers.reading import COLUMNS, messages, read_episodes

EPISODES = "rollouts"  # what a step's are logged as; "episodes" is a number of metrics.jsonl
TABLE_ROWS = 10_000  # of one table, which is held in memory; Weights & Biases shows so many


class Like:
    """What they have in common; each says what else it takes, and how it shows episodes."""

    package = ""

    def __init__(self, project: str = ""):
        self.project = project or PROJECT
        self.library = library(self.package, f"palaestra[{self.package}]")
        self.run: Any = None
        self.step = 0

    def start(self, run: Mapping[str, Any]) -> None:
        common = {"project": self.project, "name": run["name"], "group": run["group"] or None}
        self.run = self.library.init(**common, config=dict(run["config"]), **self.options(run))
        self.step = run["step"]

    def log(self, step: int, numbers: Mapping[str, float]) -> None:
        self.run.log(dict(numbers), step=step)
        self.step = step

    def episodes(self, step: int, file: Path) -> None:
        self.run.log(self.shown(step, read_episodes(file)), step=step)

    def finish(self, summary: Mapping[str, Any], files: Sequence[Path]) -> None:
        html = [p for p in files if p.suffix == ".html"]
        pages = {p.stem: self.library.Html(str(p), inject=False) for p in html}
        if pages:
            self.run.log(pages, step=self.step)
        self.close(summary)

    def options(self, run: Mapping[str, Any]) -> dict[str, Any]:
        """Further arguments of `init`."""
        raise NotImplementedError

    def shown(self, step: int, episodes: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
        """A step's episodes as what `log` takes."""
        raise NotImplementedError

    def close(self, summary: Mapping[str, Any]) -> None:
        self.library.finish()


class Trackio(Like):
    """trackio: a database of this machine, or of a server that its variables name.

    Episodes are Traces.
    """

    package = "trackio"

    def options(self, run: Mapping[str, Any]) -> dict[str, Any]:
        # a run that begins has nothing to do with an older one of the same name
        return {"resume": "allow" if run["step"] else "never", "embed": False}

    def shown(self, step: int, episodes: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
        traces = [
            self.library.Trace(
                messages=messages(e),
                metadata={k: e[k] for k in COLUMNS if k not in ("prompt", "text")},
            )
            for e in episodes
        ]
        return {EPISODES: traces}


class Wandb(Like):
    """Weights & Biases, offline unless WANDB_MODE says otherwise.

    Episodes are a table that grows by a part a step.
    """

    package = "wandb"

    def __init__(self, project: str = ""):
        super().__init__(project)
        if "WANDB_MODE" not in os.environ:
            # `init(mode="offline")` alone still sends the package's own usage data
            self.library.setup(settings=self.library.Settings(mode="offline"))
        self.table: Any = None
        self.tables = 0

    def options(self, run: Mapping[str, Any]) -> dict[str, Any]:
        # standard output is the run's own
        settings = self.library.Settings(console="off", quiet=True)
        return {
            "id": re.sub(r"[/\\#?%:]", "-", run["name"]),
            "resume": "allow",
            "settings": settings,
        }

    def shown(self, step: int, episodes: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
        columns = ["step", *COLUMNS]
        if self.table is None or len(self.table.data) + len(episodes) > TABLE_ROWS:
            self.table = self.library.Table(columns=columns, log_mode="INCREMENTAL")
            self.tables += 1
        for episode in episodes:
            self.table.add_data(step, *(episode[k] for k in COLUMNS))
        return {EPISODES if self.tables == 1 else f"{EPISODES}-{self.tables}": self.table}

    def close(self, summary: Mapping[str, Any]) -> None:
        texts = {k: v for k, v in summary.items() if isinstance(v, str) and k != "out"}
        self.run.summary.update({**texts, **numbers_of(summary)})
        super().close(summary)
