"""Which rows are made of which parts, read from the code: the public names of parts by their
section, and the recipes and claims that use them.
"""

from __future__ import annotations

import ast
import importlib
import inspect
from collections import defaultdict
from collections.abc import Mapping, Sequence
from importlib import resources

import palaestra
from palaestra import catalogue
from palaestra.ledger.experiment import experiment_of
from palaestra.markdown import code, render
from palaestra.run.benches import bench_by_name
from palaestra.values import walk

SECTIONS = (  # of the public names, those that hold parts of a row
    "Problems and worlds",
    "Which problems",
    "Attempts",
    "Rewards",
    "Credit",
    "Losses",
    "Weights that are merged or adapted, and what reads and steers a model",
    "Learners that are no language models, and what guides them",
)
MOST = 6  # rows named in a line; the others are counted


def parts_page() -> str:
    """Every public part with the rows that use it, and those that no row uses."""
    used = rows_by_part()
    sections = [
        (name, [part_row(p, used[p]) for p in parts if used[p]], [p for p in parts if not used[p]])
        for name, parts in public_parts().items()
    ]
    return render("parts.md", sections=sections)


def part_row(part: str, rows: Sequence[str]) -> tuple[str, ...]:
    """The cells of a part: its name, how many rows use it, and the first of them."""
    more = f" and {len(rows) - MOST} more" if len(rows) > MOST else ""
    return code(f"pl.{part}"), str(len(rows)), ", ".join(rows[:MOST]) + more


def public_parts() -> dict[str, list[str]]:
    """The public classes of the sections that hold parts, in the order in which they are listed."""
    text = resources.files("palaestra").joinpath("__init__.pyi").read_text()
    heads = {
        n: line[2:].strip() for n, line in enumerate(text.splitlines(), 1) if line.startswith("# ")
    }
    found: dict[str, list[str]] = {name: [] for name in SECTIONS}
    for node in ast.parse(text).body:
        section = heads[max((n for n in heads if n < node.lineno), default=min(heads))]
        if isinstance(node, ast.ImportFrom) and section in found:
            found[section] += [
                a.name for a in node.names if inspect.isclass(getattr(palaestra, a.name))
            ]
    return found


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
            names |= names_of(inspect.getsource(importlib.import_module(module)))
        tasks = experiment_of(entry.id).task if entry.claim else ()
        for task in (tasks,) if isinstance(tasks, str) else tasks:
            bench, _ = bench_by_name(task)
            names |= {type(part).__name__ for part in (bench.tasks, bench.world)}
        for name in sorted(names):
            found[name].append(entry.id)
    return found


def names_of(source: str) -> set[str]:
    """The public names that code uses: `pl.NAME`."""
    return {
        node.attr
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.Attribute)
        and isinstance(node.value, ast.Name)
        and node.value.id == "pl"
    }
