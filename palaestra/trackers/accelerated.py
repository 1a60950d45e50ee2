"""Trackers that accelerate knows: MLflow, Aim, ClearML, Comet, DVCLive.

They are sent settings and numbers.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from palaestra.errors import UserError
from palaestra.trackers.base import PROJECT, library

PACKAGES = {
    "mlflow": "mlflow",
    "aim": "aim",
    "clearml": "clearml",
    "comet": "comet_ml",
    "dvclive": "dvclive",
}
EXTRA = "palaestra[mlflow]"  # accelerate comes with it


class Accelerated:
    """`accelerate:NAME[:PROJECT]`. The variables of the service itself say where the numbers go."""

    def __init__(self, given: str = ""):
        self.name, _, project = given.partition(":")
        if self.name not in PACKAGES:
            known = ", ".join(f"accelerate:{n}" for n in PACKAGES)
            raise UserError(f"--track accelerate:{given}: there are {known}")
        if int(os.environ.get("WORLD_SIZE", "1")) > 1:  # accelerate would join its processes
            raise UserError(f"--track accelerate:{given} is for one process, not WORLD_SIZE > 1")
        self.project = project or PROJECT
        self.accelerate = library("accelerate", EXTRA)
        self.tracking = library("accelerate.tracking", EXTRA)
        package = PACKAGES[self.name]
        self.package = library(package, EXTRA if self.name == "mlflow" else package)
        self.tracker: Any = None

    def start(self, run: Mapping[str, Any]) -> None:
        self.accelerate.PartialState(cpu=True)  # its trackers want one; the GPU is the run's
        kind = self.tracking.LOGGER_TYPE_TO_CLASS[PACKAGES[self.name]]
        self.tracker = kind(**self.options(run))
        self.tracker.start()
        if not run["step"]:
            self.tracker.store_init_configuration(flat(run["config"]))

    def log(self, step: int, numbers: Mapping[str, float]) -> None:
        self.tracker.log(dict(numbers), step=step)

    def episodes(self, step: int, file: Path) -> None:
        pass

    def finish(self, summary: Mapping[str, Any], files: Sequence[Path]) -> None:
        self.tracker.finish()

    def options(self, run: Mapping[str, Any]) -> dict[str, Any]:
        """What accelerate's tracker of this name is made with."""
        name = run["name"]
        if self.name == "mlflow":
            return {"experiment_name": self.project, "run_name": name, "run_id": self.known(run)}
        if self.name == "dvclive":
            place = run["folder"] / "dvclive"
            return {"dir": str(place), "resume": bool(run["step"]), "save_dvc_exp": False}
        if self.name == "clearml":
            return {"run_name": name, "project_name": self.project, "task_name": name}
        if self.name == "comet":
            return {
                "run_name": self.project,
                "experiment_config": self.package.ExperimentConfig(name=name),
            }
        return {"run_name": name, "experiment": self.project}

    def known(self, run: Mapping[str, Any]) -> str | None:
        """The id of the newest run of this name in MLflow, where the run goes on."""
        if not run["step"]:
            return None
        runs = self.package.search_runs(
            experiment_names=[self.project],
            filter_string=f'attributes.run_name = "{run["name"]}"',
            max_results=1,
            output_format="list",
        )
        return runs[0].info.run_id if runs else None


def flat(config: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Settings by dotted path; what is no number is text."""
    leaves: dict[str, Any] = {}
    for key, given in config.items():
        if isinstance(given, Mapping):
            leaves |= flat(given, f"{prefix}{key}.")
        else:
            number = isinstance(given, bool | int | float)
            leaves[f"{prefix}{key}"] = given if number else str(given)
    return leaves
