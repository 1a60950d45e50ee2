"""What a tracker is: an observer of a run, which writes or sends its numbers elsewhere.

The run folder is the truth.
"""

from __future__ import annotations

import importlib
import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

from palaestra.errors import UserError

PROJECT = "palaestra"  # what runs are kept under, unless `--track NAME:PROJECT` says otherwise


@runtime_checkable
class Tracker(Protocol):
    """An observer of one run. One thread calls its methods, in the order given here."""

    def start(self, run: Mapping[str, Any]) -> None:
        """Called once, also when a run goes on; `run` is what `describe_run` returns."""
        ...

    def log(self, step: int, numbers: Mapping[str, float]) -> None:
        """The numbers of a line of metrics.jsonl; an evaluation comes after its step's own line."""
        ...

    def episodes(self, step: int, file: Path) -> None:
        """A Parquet file with the step's episodes that is complete, before the step's numbers."""
        ...

    def finish(self, summary: Mapping[str, Any], files: Sequence[Path]) -> None:
        """Called last. `summary` is that of summary.json and `files` the pages made from it.

        Both are empty where the run was stopped: it may go on.
        """
        ...


def describe_run(folder: Path, step: int = 0) -> dict[str, Any]:
    """What a tracker is told of the run in a folder that goes on after `step` steps; 0: it begins.

    `name` is the folder's name, by which a resumed run is found again; `group` that of the pipeline
    which the run is a part of, else empty; `config` holds the settings of its config.toml.
    """
    folder = folder.resolve()
    part = not (folder / "config.toml").is_file() and (folder.parent / "config.toml").is_file()
    whole = folder.parent if part else folder
    config = whole / "config.toml"
    return {
        "name": f"{whole.name}-{folder.name}" if part else folder.name,
        "group": whole.name if part else "",
        "folder": folder,
        "step": step,
        "config": tomllib.loads(config.read_text(encoding="utf-8")) if config.is_file() else {},
    }


def numbers_of(record: Mapping[str, Any]) -> dict[str, float]:
    """The numbers of a line of metrics.jsonl; those of an evaluation as `evaluation/mean`."""
    numbers: dict[str, float] = {}
    for name, given in record.items():
        if isinstance(given, Mapping):
            numbers |= {f"{name}/{k}": v for k, v in numbers_of(given).items()}
        elif isinstance(given, int | float) and not isinstance(given, bool) and name != "step":
            numbers[name] = given
    return numbers


def library(module: str, install: str) -> Any:
    """A tracker's own package, which pip gets as `install`; UserError where it does not load."""
    try:
        return importlib.import_module(module)
    except ImportError as error:
        missing = isinstance(error, ModuleNotFoundError) and error.name == module.partition(".")[0]
        why = "is missing" if missing else f"does not load ({error})"
        raise UserError(f"--track: the package {module} {why}: pip install '{install}'") from None
