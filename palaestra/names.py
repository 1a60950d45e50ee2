"""The public names: what stands on top, and what in the namespaces, which are the rooms of the
package. Read from the stubs and `__all__`, so nothing is imported.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Callable
from functools import cache
from pathlib import Path

import lazy_loader

ROOT = Path(__file__).parent
BESIDE = ("recipes", "claims")  # rooms whose parts have one user and no public name


def attach(
    room: str, file: str
) -> tuple[Callable[[str], object], Callable[[], list[str]], list[str]]:
    """`__getattr__`, `__dir__` and `__all__` of a room: the names of its stub, each imported when it
    is asked for. A name that is not there raises AttributeError, which says where it is.

    Args:
        room: `__name__` of the package.
        file: its `__file__`.
    """
    get, names, every = lazy_loader.attach_stub(room, file)
    here = Path(file).parent

    def look_up(name: str) -> object:
        try:
            return get(name)
        except AttributeError:
            if name.startswith("_") or (here / name).is_dir() or (here / f"{name}.py").is_file():
                raise
            asked = f"{room}.{name}".replace("palaestra", "pl", 1)
            raise AttributeError(where_it_is(asked)) from None

    return look_up, names, every


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


def where_it_is(asked: str) -> str:
    """What is said of a public name that is not there, "pl.Ema": where it is, if it is anywhere."""
    from palaestra.identity import current_name  # here, as it would slow every start

    name = current_name(asked.rpartition(".")[2])
    homes = [f"pl.{n}" for n in public_names() if n.rpartition(".")[2] == name]
    homes = homes or _beside(name)
    room, _, bare = asked.rpartition(".")
    return f"{asked} is {' or '.join(homes)}" if homes else f"{room} has no {bare!r}"


def _beside(name: str) -> list[str]:
    """Where recipes and claims define a name."""
    line = re.compile(rf"^(?:class|def|async def) {re.escape(name)}\b", re.MULTILINE)
    files = [path for room in BESIDE for path in sorted((ROOT / room).rglob("*.py"))]
    return [
        ".".join((*path.relative_to(ROOT.parent).with_suffix("").parts, name))
        for path in files
        if line.search(path.read_text(encoding="utf-8"))
    ]


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


def _imports(stub: Path) -> list[ast.ImportFrom]:
    tree = ast.parse(stub.read_text(encoding="utf-8"))
    return [node for node in tree.body if isinstance(node, ast.ImportFrom)]
