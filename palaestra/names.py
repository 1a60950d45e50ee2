"""The public names: what stands on top, and what in the namespaces, which are the rooms of the
package. Read from the stubs and `__all__`, so nothing is imported.
"""

from __future__ import annotations

import ast
from functools import cache
from importlib import resources
from importlib.resources.abc import Traversable

ROOT = resources.files("palaestra")


@cache
def public_names() -> dict[str, str]:
    """The module of each public name, as a user writes it behind `pl.`: "Center", "credit.Ema"."""
    names: dict[str, str] = {}
    for node in _imports(ROOT / "__init__.pyi"):
        if node.module:
            names |= {a.name: f"palaestra.{node.module}" for a in node.names}
    for space in namespaces():
        names |= {f"{space}.{name}": module for name, module in _inside(space).items()}
    return names


@cache
def namespaces() -> tuple[str, ...]:
    """The rooms that hold public names."""
    nodes = _imports(ROOT / "__init__.pyi")
    return tuple(a.name for node in nodes if not node.module for a in node.names)


def names_in(source: str) -> set[str]:
    """The public names that code uses, as it writes them behind `pl.`: "Sample", "credit.Ema"."""
    chains = [ast.unparse(n) for n in ast.walk(ast.parse(source)) if isinstance(n, ast.Attribute)]
    return {c.removeprefix("pl.") for c in chains if c.startswith("pl.")} & public_names().keys()


def where_it_is(name: str) -> str:
    """What is said of a name that is not on top: where it is now, if there is one of that name."""
    homes = [f"pl.{n}" for n in public_names() if n.rpartition(".")[2] == name]
    return f"pl.{name} is {' or '.join(homes)}" if homes else f"pl has no {name!r}"


def _inside(space: str) -> dict[str, str]:
    """Names of a namespace by their modules."""
    stub = ROOT / space / "__init__.pyi"
    if stub.is_file():
        nodes = _imports(stub)
        return {a.name: f"palaestra.{space}.{n.module}" for n in nodes for a in n.names}
    for node in ast.parse((ROOT / f"{space}.py").read_text(encoding="utf-8")).body:
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "__all__":
            return dict.fromkeys(ast.literal_eval(node.value), f"palaestra.{space}")
    raise ValueError(f"palaestra.{space} has neither a stub nor __all__")


def _imports(stub: Traversable) -> list[ast.ImportFrom]:
    tree = ast.parse(stub.read_text(encoding="utf-8"))
    return [node for node in tree.body if isinstance(node, ast.ImportFrom)]
