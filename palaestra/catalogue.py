"""The method catalogue: every row of the literature in scope, and the recipe module of those that are built.

A recipe lives in `recipes/<family>/<id with underscores>.py` with `CARD` and `build()`. Listing imports none of them.
A user's own recipe is a file with `build()`, named by its path; it may have a `CARD`.
"""

from __future__ import annotations

import csv
import difflib
import importlib
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from types import ModuleType

from palaestra.card import Card
from palaestra.errors import UserError
from palaestra.tasks.user_code import module_of, path_of

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
    """The recipe module of a method, or of a user's FILE.py; a UserError that suggests names otherwise."""
    if own(method):
        return own_module(method)
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
    hint = f"; did you mean {method}.py?" if Path(f"{method}.py").is_file() else hint
    raise UserError(f"no method {method!r}{hint}")


def own(method: str) -> bool:
    """Whether a method is a user's file and not a name."""
    return method.endswith(".py")


def own_module(file: str) -> ModuleType:
    """A user's recipe file; a UserError where it builds nothing."""
    module = module_of(str(path_of(file)))
    if not callable(getattr(module, "build", None)):
        raise UserError(f"{file}: no function 'build'; write def build(): return vary(grpo.build(), ...)")
    if not hasattr(module, "CARD"):
        title = (module.__doc__ or "a recipe of your own").strip().splitlines()[0].rstrip(".")
        vars(module)["CARD"] = Card(id=Path(file).stem, family="own", title=title, claim="")
    return module
