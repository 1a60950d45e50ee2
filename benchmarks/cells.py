"""What runners of studies share: cells in one JSON file, which is read before each cell and rewritten whole after it, so that
a runner that was killed goes on; their arguments; and what their pages are filled from.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from palaestra.markdown import fill_marks
from palaestra.store.checkpoint import write_atomic

Results = dict[str, Any]


@dataclass(frozen=True)
class CellFile:
    """How a study keeps its cells.

    Attributes:
        sections: of the file, in their order; cells are in one of them by name, other sections have
            what is known of a block.
        indent: of the text; None = all on one line.
        separators: of the text; None = those of `json`.
    """

    sections: tuple[str, ...] = ("cells",)
    indent: int | None = 1
    separators: tuple[str, str] | None = None

    def read(self, file: Path) -> Results:
        """The cells so far."""
        if file.is_file():
            return json.loads(file.read_text())
        return {name: {} for name in self.sections}

    def write(self, file: Path, results: Mapping[str, Any]) -> None:
        text = json.dumps(results, indent=self.indent, separators=self.separators)
        write_atomic(file, text + "\n")

    def keep(self, file: Path, **entries: tuple[str, Any]) -> None:
        """Adds to sections of the file an entry each, (name, what it is), and leaves the others as another
        process may have written them.
        """
        results = self.read(file)
        for section, (name, entry) in entries.items():
            results.setdefault(section, {})[name] = entry
        self.write(file, results)

    def has(self, file: Path, name: str, section: str = "cells") -> bool:
        """Whether a cell need not be run again."""
        return name in self.read(file).get(section, {})


def parser_of(
    about: str | None, seeds: Sequence[int], **names: Sequence[str]
) -> argparse.ArgumentParser:
    """The arguments of a study: the file of its cells, the seeds, and by flag names of which some may be chosen.

    Args:
        about: the help, the docstring of the study.
        seeds: those that are run where none are named.
    """
    parser = argparse.ArgumentParser(description=about)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--seeds", type=int, nargs="+", default=seeds)
    for flag, every in names.items():
        parser.add_argument(f"--{flag}", nargs="+", default=list(every))
    return parser


def fill_page(
    folder: Path,
    page: Path,
    parts_of: Callable[[Results], Mapping[str, str]],
    picture: Path | None = None,
    picture_of: Callable[[Results], str] | None = None,
) -> Results:
    """Fills the marked parts of a page, and writes its picture, from `results.json` of the study's folder, which it
    returns.
    """
    results: Results = json.loads((folder / "results.json").read_text())
    page.write_text(fill_marks(page.read_text(), parts_of(results)))
    if picture is not None and picture_of is not None:
        picture.write_text(picture_of(results))
    return results


def trial_note(run: int, whole: int) -> list[str]:
    """The first line of conclusions where declared cells are missing, else none."""
    if run >= whole:
        return []
    return [
        f"- **Not complete: {run} of {whole} declared cells are run.** While one is missing all "
        "differences are a trial, and nothing is decided."
    ]
