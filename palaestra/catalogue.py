"""The method catalogue: every row of the literature in scope, and the recipe module of those that
are built.

A recipe lives in `recipes/<family>/<id with underscores>.py`, or in a folder of that name, with
`CARD` and `build()`, its claim, if it has one, as `EXPERIMENT` in `claims/<family>/` under the same
name. Listing imports none of them. A user's own recipe is a file with `build()`, named by its path; it may have a `CARD`. Another
package adds such a module by a name.
"""

from __future__ import annotations

import csv
import importlib
from collections.abc import Mapping
from contextvars import ContextVar
from dataclasses import dataclass
from functools import cache
from importlib import resources
from pathlib import Path
from types import ModuleType
from typing import Any

from palaestra.card import Card
from palaestra.errors import UserError
from palaestra.plugins import Plugin, plugins
from palaestra.plugins import find as find_plugin
from palaestra.suggest import METHODS_ELSEWHERE, from_elsewhere, suggestion
from palaestra.tasks.user_code import module_of, path_of
from palaestra.values import YAML

PLUGINS = "plugins"  # the family of what other packages add
CHECK = "checks"  # that of studies which are no rows of the literature
CHECKS: Mapping[str, str] = {  # their modules by name
    name: f"palaestra.studies.checks.{name}" for name in ("calibration", "forgetting")
}
# families that are no rows of the literature: base methods, and losses by the names people type
BASE, LOSSES = "base", "losses"
# anything else that runs is a program
SHAPES: Mapping[str, str] = {"Recipe": "recipe", "Pipeline": "pipeline"}
# by the recipe that is being built
_parents: ContextVar[list[str] | None] = ContextVar("varied", default=None)


@dataclass(frozen=True)
class Entry:
    """One method, or one text about methods. `kind`: system, benchmark, study, survey or essay;
    base methods are their own kind. `shape`: recipe, pipeline, program, or page, which is read and
    not run.
    """

    id: str
    family: str
    kind: str
    title: str
    shape: str

    @property
    def name(self) -> str:
        """Of its modules."""
        return self.id.replace("-", "_").replace(".", "_")

    @property
    def module(self) -> str:
        return f"palaestra.recipes.{self.family}.{self.name}"

    @property
    def claim(self) -> str:
        """The module of its claim; "" = it has none."""
        return f"palaestra.claims.{self.family}.{self.name}" if self._there("claims") else ""

    @property
    def built(self) -> bool:
        """Whether its recipe is there, to be run."""
        return self._there("recipes")

    @property
    def page(self) -> str:
        """The document that a row is which is read and not run; "" = it is a method, or its text is
        not there.
        """
        return f"docs/surveys/{self.id}.md" if self.shape == "page" else ""

    def _there(self, room: str) -> bool:
        family = Path(str(resources.files("palaestra"))).joinpath(room, self.family)
        return any(
            family.joinpath(file).is_file()
            for file in (f"{self.name}.py", f"{self.name}/__init__.py")
        )

    @property
    def command(self) -> str:
        return f"palaestra train {self.id}" if self.built else ""


def all_entries() -> list[Entry]:
    """The base methods, losses by name, then the literature, in the catalogue's order."""
    return list(_entries())


@cache  # a process asks for them hundreds of times, and the file is part of the package
def _entries() -> tuple[Entry, ...]:
    with resources.files("palaestra").joinpath("catalogue.tsv").open(encoding="utf-8") as f:
        return tuple(Entry(**row) for row in csv.DictReader(f, delimiter="\t"))


@cache
def domains() -> Mapping[str, tuple[str, ...]]:
    """The methods of each field of application, by its name: "chemistry", "finance", ..."""
    place = resources.files("palaestra").joinpath("surveys/domains.tsv")
    rows_by_domain = dict[str, tuple[str, ...]]()
    with place.open(encoding="utf-8") as f:
        for row in csv.DictReader(f, delimiter="\t"):
            rows_by_domain[row["domain"]] = (*rows_by_domain.get(row["domain"], ()), row["id"])
    return rows_by_domain


def rows() -> list[Entry]:
    """The 221 rows of the literature."""
    return [e for e in all_entries() if e.family not in (BASE, LOSSES)]


def find(method: str) -> ModuleType:
    """The recipe module of a method, or of a user's FILE.py; a UserError that suggests names
    otherwise.
    """
    if is_own_file(method):
        return own_module(method)
    known = {e.id: e for e in all_entries()}
    entry = known.get(method)
    if entry is not None and entry.page:
        raise UserError(
            f"{method!r} is no method to run but a text about others; read {entry.page}"
        )
    if entry is not None:
        return importlib.import_module(entry.module)
    if method in CHECKS:
        return importlib.import_module(CHECKS[method])
    if (plugin := find_plugin("recipes", method)) is not None:
        return added_module(plugin)
    names = [*(e.id for e in known.values() if e.built), *(p.name for p in plugins("recipes"))]
    spelt = method.lower().replace("_", "-")  # as other trainers write names
    closest = f"; write {spelt}" if spelt in names else from_elsewhere(method, METHODS_ELSEWHERE)
    hint = closest or suggestion(method, names, cutoff=0.5) or "; `palaestra list` shows all"
    if Path(method).suffix == ".toml":
        hint = f"; a file of settings is written with @ in front: @{method}"
    elif Path(method).suffix in (".yaml", ".yml"):
        hint = YAML
    hint = f"; did you mean {method}.py?" if Path(f"{method}.py").is_file() else hint
    raise UserError(f"no method {method!r}{hint}")


def entry_of(method: str) -> Entry:
    """The row of a built method, or one for a FILE.py or a plugin. Raises UserError as
    `find` does.
    """
    module = find(method)
    for entry in all_entries():
        if entry.id == method:
            return entry
    name, family = (Path(method).stem, "own") if is_own_file(method) else (method, PLUGINS)
    family = CHECK if method in CHECKS else family
    shape = shape_of(module.build())
    return Entry(id=name, family=family, kind="system", title=module.CARD.title, shape=shape)


def recipe(method: str, /, **arguments: Any) -> Any:
    """The recipe of a method, or of a user's FILE.py, to be run or varied:
    `recipe("grpo", kl=0.04)`.

    Args:
        method: an id of the catalogue, as `palaestra list` shows them, or the path of a file with
            `build()`.
        arguments: those of its `build`.

    Returns:
        A `Recipe`, a `Pipeline`, or a program of the method's own.

    Raises:
        UserError: there is no such method, with what it may have meant; TypeError: `build` has no
            such argument.
    """
    if (varied := _parents.get()) is not None:
        varied.append(method)
    outer = _parents.set(None)  # what a parent varies is the parent's matter
    try:
        return find(method).build(**arguments)
    finally:
        _parents.reset(outer)


def parent_of(method: str) -> str:
    """The method whose recipe the `build` of this one varies; "" = none. A pipeline is made of
    parts and varies none.
    """
    varied: list[str] = []
    outer = _parents.set(varied)
    try:
        built = find(method).build()
    finally:
        _parents.reset(outer)
    return varied[0] if varied and shape_of(built) == "recipe" else ""


def shape_of(built: Any) -> str:
    """What `build` returned: "recipe", "pipeline" or "program"."""
    return SHAPES.get(type(built).__name__, "program")


def is_own_file(method: str) -> bool:
    """Whether a method is a user's file and not a name."""
    return method.endswith(".py")


def own_module(file: str) -> ModuleType:
    """A user's recipe file; a UserError where it builds nothing."""
    module = module_of(str(path_of(file)))
    if not builds(module):
        raise UserError(
            f"{file}: no function 'build'; write def build(): return pl.vary(pl.recipe('grpo'), ...)"
        )
    return carded(module)


def added_module(plugin: Plugin) -> ModuleType:
    """The recipe module that another package adds; a UserError where it is none."""
    module = plugin.load()
    if not isinstance(module, ModuleType) or not builds(module):
        raise plugin.refusal(f"{plugin.entry.value} is no module with a function 'build'")
    if not isinstance(carded(module).CARD, Card):
        raise plugin.refusal(f"the CARD of {plugin.entry.value} is no palaestra.card.Card")
    return module


def builds(module: ModuleType) -> bool:
    """Whether a module has a `build`."""
    return callable(getattr(module, "build", None))


def carded(module: ModuleType) -> ModuleType:
    """The module with a card: the first line of its docstring, where it brings none."""
    if not hasattr(module, "CARD"):
        title = (
            ((module.__doc__ or "").strip() or "a recipe of your own").splitlines()[0].rstrip(".")
        )
        vars(module)["CARD"] = Card(title=title)
    return module


def plugin_of(method: str) -> Plugin | None:
    """What another package adds under the name of a method that is none of ours."""
    ours = is_own_file(method) or method in CHECKS or any(e.id == method for e in all_entries())
    return None if ours else find_plugin("recipes", method)
