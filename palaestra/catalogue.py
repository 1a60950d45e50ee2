"""The method catalogue: every row of the literature in scope, and the recipe module of those that are built.

A recipe lives in `recipes/<family>/<id with underscores>.py` with `CARD` and `build()`. Listing imports none of them.
"""

from __future__ import annotations

import csv
import difflib
import importlib
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from types import ModuleType

from palaestra.types import UserError

PACKAGE = "palaestra.recipes"


@dataclass(frozen=True)
class Entry:
    """One method. `kind`: system, benchmark, study, survey or essay; base methods are their own kind."""

    id: str
    family: str
    kind: str
    title: str
    shape: str

    @property
    def module(self) -> str:
        return f"{PACKAGE}.{self.family}.{self.id.replace('-', '_').replace('.', '_')}"

    @property
    def built(self) -> bool:
        *folders, name = self.module.split(".")[1:]
        return Path(str(resources.files("palaestra"))).joinpath(*folders, f"{name}.py").is_file()

    @property
    def command(self) -> str:
        return f"palaestra train {self.id}" if self.built else ""


def everything() -> list[Entry]:
    """The base methods, then the literature, in the catalogue's order."""
    with resources.files("palaestra").joinpath("catalogue.tsv").open(encoding="utf-8") as f:
        return [Entry(**row) for row in csv.DictReader(f, delimiter="\t")]


def rows() -> list[Entry]:
    """The 221 rows of the literature."""
    return [e for e in everything() if e.family != "base"]


def find(method: str) -> ModuleType:
    """The recipe module of a method; a UserError that suggests names otherwise."""
    known = {e.id: e for e in everything()}
    entry = known.get(method)
    if entry is not None and entry.built:
        return importlib.import_module(entry.module)
    if entry is not None:
        raise UserError(
            f"{method!r} ({entry.title}) is in the catalogue but not built yet; `palaestra list` shows what is"
        )
    close = difflib.get_close_matches(method, [e.id for e in known.values() if e.built], n=3, cutoff=0.5)
    hint = f"; did you mean {' or '.join(close)}?" if close else "; `palaestra list` shows all"
    raise UserError(f"no method {method!r}{hint}")
