"""The method catalogue: every row of the literature in scope, and the recipe module of those that are built.

A recipe lives in `recipes/<family>/<id with underscores>.py` with `CARD` and `build()`. Listing imports none of them.
"""

from __future__ import annotations

import csv
import difflib
import importlib
import sys
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from types import ModuleType
from typing import Any

from palaestra.ledger.files import Standing, read_result
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
    def status(self) -> str:
        """planned, built, or the ledger's verdict."""
        return self.standing.status

    @property
    def standing(self) -> Standing:
        if not self.built:
            return Standing(status="planned")
        if read_result(self.id) is None:
            return Standing(status="built")
        from palaestra.ledger.results import standing  # loads the recipe

        return standing(self.id, self.module)

    @property
    def command(self) -> str:
        return f"palaestra train {self.id}" if self.built else ""

    def json(self) -> dict[str, Any]:
        names = ("id", "family", "kind", "title", "shape", "status", "command")
        return {n: getattr(self, n) for n in names} | ({"note": self.standing.note} if self.standing.note else {})


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


def main() -> int:
    """Writes the generated pages; with --check only compares."""
    from palaestra.ledger.pages import files, left_over

    made = files()
    gone, other = left_over(made), [p for p, text in made.items() if not p.is_file() or p.read_text() != text]
    if "--check" in sys.argv[1:]:
        for path in (*other, *gone):
            print(f"{path} is out of date: run python -m palaestra.catalogue", file=sys.stderr)
        return 1 if other or gone else 0
    for path in gone:
        path.unlink()
    for path in other:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(made[path])
    return 0


if __name__ == "__main__":
    sys.exit(main())
