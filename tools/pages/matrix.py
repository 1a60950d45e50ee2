"""Which rows are made of which parts, read from the code: the public names of parts by their
section, and the recipes and claims that use them.
"""

from __future__ import annotations

import ast
import importlib
import inspect
from collections import defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import palaestra
from palaestra import catalogue
from palaestra.declared import ANYTHING, DeclaredName
from palaestra.ledger.experiment import experiment_of
from palaestra.ledger.read_off import get
from palaestra.markdown import code
from palaestra.names import names_in, public_names
from palaestra.run.benches import bench_by_name
from palaestra.values import walk
from tools.pages.rendering import render

SECTIONS = {  # of parts of a row, by the rooms that hold them
    "Problems and worlds": ("tasks", "toys", "worlds"),
    "Which problems": ("curriculum",),
    "Attempts": ("rollout",),
    "Rewards": ("rewards", "verifiers", "judges"),
    "Credit": ("credit",),
    "Losses": ("objective", "mixing"),
    "Models": ("models",),
    "Privacy": ("privacy",),
    "Learners that are no language models": ("control",),
}
MOST = 6  # rows named in a line; the others are counted


def parts_page() -> str:
    """Every public part with the rows that use it, and those that no row uses."""
    used = rows_by_part()
    sections = [
        (
            section,
            [part_row(p, rows) for p in parts if (rows := used[bare(p)])],
            [p for p in parts if not used[bare(p)]],
        )
        for section, parts in public_parts().items()
    ]
    return render("parts.md", sections=sections, **declared_names())


def declared_names() -> dict[str, list[tuple[str, ...]]]:
    """The facts and the columns that parts declare: name, type, meaning and who writes each."""
    found: dict[str, dict[DeclaredName, list[str]]] = {"facts": {}, "columns": {}}
    for part in declaring_parts():
        writes = vars(part)
        for kind, each in found.items():
            for entry in writes.get(f"writes_{kind}", ()):
                if entry.name != ANYTHING:
                    each.setdefault(entry, []).append(part.__name__)
    return {
        kind: [
            (code(x.name), "any" if x.kind is object else x.kind.__name__, x.meaning, ", ".join(by))
            for x, by in sorted(each.items(), key=lambda pair: pair[0].name)
        ]
        for kind, each in found.items()
    }


def declaring_parts() -> list[Any]:
    """Classes and functions of the package with the decorator `declare`, by the text of its files;
    those whose names follow a setting, as `Mark`, are not among them.
    """
    package = Path(palaestra.__file__).parent
    found: list[Any] = []
    for file in sorted(package.rglob("*.py")):
        tree = ast.parse(file.read_text())
        names = [
            node.name
            for node in tree.body
            if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef)
            and any(
                ast.unparse(d).partition("(")[0].endswith("declare") for d in node.decorator_list
            )
        ]
        if names:
            module = importlib.import_module(module_of(file))
            found += [getattr(module, name) for name in names]
    return found


def module_of(file: Path) -> str:
    """The module that a file of the package is."""
    inside = file.relative_to(Path(palaestra.__file__).parent.parent).with_suffix("")
    return ".".join(inside.parts)


def part_row(part: str, rows: Sequence[str]) -> tuple[str, ...]:
    """The cells of a part: its name, how many rows use it, and the first of them."""
    more = f" and {len(rows) - MOST} more" if len(rows) > MOST else ""
    return code(f"pl.{part}"), str(len(rows)), ", ".join(rows[:MOST]) + more


def public_parts() -> dict[str, list[str]]:
    """The public classes of the rooms that hold parts, as a user writes them, by section."""
    room_of = {name: module.split(".")[1] for name, module in public_names().items()}
    return {
        section: [n for n, room in room_of.items() if room in rooms and inspect.isclass(get(n))]
        for section, rooms in SECTIONS.items()
    }


def bare(name: str) -> str:
    """A public name without its namespace."""
    return name.rpartition(".")[2]


def rows_by_part() -> Mapping[str, list[str]]:
    """Ids of the built rows by the parts that their recipe is made of, that the code of their
    recipe or claim names, or that their claim is measured on.
    """
    found: dict[str, list[str]] = defaultdict(list)
    for entry in catalogue.all_entries():
        if not entry.built:
            continue
        recipe = catalogue.find(entry.id)
        names = {type(part).__name__ for _, part in walk(recipe.build())}
        for module in filter(None, (entry.module, entry.claim)):
            source = inspect.getsource(importlib.import_module(module))
            names |= {bare(name) for name in names_in(source)}
        tasks = experiment_of(entry.id).task if entry.claim else ()
        for task in (tasks,) if isinstance(tasks, str) else tasks:
            bench, _ = bench_by_name(task)
            names |= {type(part).__name__ for part in (bench.tasks, bench.world)}
        for name in sorted(names):
            found[name].append(entry.id)
    return found
