"""The method catalogue: every row of the literature in scope, and the recipe module of those that are built.

A recipe lives in `recipes/<family>/<id with underscores>.py` with `CARD` and `build()`. Listing imports none of them.
"""

from __future__ import annotations

import csv
import difflib
import importlib
import json
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from types import ModuleType
from typing import Any

from palaestra.types import UserError

PACKAGE = "palaestra.recipes"
VERDICTS = {"reproduced", "not-reproduced", "inconclusive"}


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
    def status(self) -> str:
        """planned, built, or the ledger's verdict."""
        if not self.built:
            return "planned"
        result = Path(str(resources.files("palaestra"))) / "ledger" / "results" / f"{self.id}.json"
        verdict = json.loads(result.read_text())["verdict"] if result.is_file() else ""
        return verdict if verdict in VERDICTS else "built"

    @property
    def command(self) -> str:
        return f"palaestra train {self.id}" if self.built else ""

    def json(self) -> dict[str, Any]:
        names = ("id", "family", "kind", "title", "shape", "status", "command")
        return {n: getattr(self, n) for n in names}


def rows() -> list[Entry]:
    """The 221 rows of the literature, in the catalogue's order."""
    with resources.files("palaestra").joinpath("catalogue.tsv").open(encoding="utf-8") as f:
        return [Entry(**row) for row in csv.DictReader(f, delimiter="\t")]


def base() -> list[Entry]:
    """The methods that the others vary."""
    folder = Path(str(resources.files(PACKAGE))) / "base"
    cards = [importlib.import_module(f"{PACKAGE}.base.{p.stem}").CARD for p in sorted(folder.glob("[!_]*.py"))]
    return [Entry(id=c.id, family="base", kind="base", title=c.title, shape=c.shape) for c in cards]


def find(method: str) -> ModuleType:
    """The recipe module of a method; a UserError that suggests names otherwise."""
    known = {e.id: e for e in rows()}
    entry = known.get(method, Entry(id=method, family="base", kind="base", title="", shape=""))
    if entry.built:
        return importlib.import_module(entry.module)
    if method in known:
        raise UserError(f"{method!r} ({entry.title}) is in the catalogue but not built yet; `palaestra list` shows what is")
    close = difflib.get_close_matches(method, [e.id for e in (*base(), *known.values()) if e.built], n=3, cutoff=0.5)
    hint = f"; did you mean {' or '.join(close)}?" if close else "; `palaestra list` shows all"
    raise UserError(f"no method {method!r}{hint}")
