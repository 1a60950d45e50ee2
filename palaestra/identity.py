"""What a class or a function is called where its name outlives the program: in digests, checkpoints
and stored results.

A class of this package is called by its own name, which no other class of the package has, so it
may move to another file. What a user wrote is called `FILE:Name`, what another package defines
`package:Name`. `renamed.tsv` lists what was called otherwise before: stored names are read through
it, and a class that is renamed keeps its first name in digests. So do fields, by
`renamed_fields.tsv`.
"""

from __future__ import annotations

import csv
import importlib
import os
import re
import sys
from collections.abc import Mapping
from functools import cache
from importlib import resources
from pathlib import Path
from typing import Any

PACKAGE = "palaestra"
USER_PACKAGE = "palaestra_user_files"  # modules of users' files, see `tasks.user_modules`
CLASS_LINE = re.compile(r"^class (\w+)", re.MULTILINE)


def name_of(x: Any) -> str:
    """The stable name of a class or function.

    >>> from palaestra.objective.policy import Clipped
    >>> name_of(Clipped)
    'Clipped'
    """
    module, name = str(x.__module__), str(x.__qualname__)
    if module.partition(".")[0] == PACKAGE:
        return first_names().get(name, name)
    if module.startswith(f"{USER_PACKAGE}."):
        path = Path(path_of_user_module(module))
        return f"{path.parent.name if path.name == '__init__.py' else path.stem}:{name}"
    return f"{module.partition('.')[0]}:{name}"


def user_module_name(path: str) -> str:
    """The full name of the module that a user's file is, the same in every process. A package is
    named by its __init__.py.
    """
    file = Path(path)
    stem = file.parent.name if file.name == "__init__.py" else file.stem
    word = re.sub(r"\W", "_", stem)  # a dot would be read as a package's
    return f"{USER_PACKAGE}.{word}_{os.fsencode(path).hex()}"


def path_of_user_module(name: str) -> str:
    """The path in the name of a user's module, or of one inside of a user's package."""
    return os.fsdecode(bytes.fromhex(name.split(".")[1].rpartition("_")[2]))


def current_name(stored: str) -> str:
    """What the class of a stored name is called now; names of former releases say the
    module too.
    """
    return table().get(stored) or stored.rpartition(":")[2]


def find(name: str) -> Any:
    """The class of this package with a stable or a stored name; None = there is none."""
    wanted = current_name(name)
    module = places().get(wanted.partition(".")[0])
    try:
        value: Any = importlib.import_module(module) if module else None
    except ImportError:  # what lies inside the sandbox is imported there alone
        return None
    for part in wanted.split("."):
        value = getattr(value, part, None)
    return value if getattr(value, "__qualname__", None) == wanted else None


def leads_back(x: Any) -> bool:
    """Whether the place that `x` says it was defined in holds it: a closure or a lambda
    has none.
    """
    value: Any = sys.modules.get(x.__module__)
    for part in x.__qualname__.split("."):
        value = getattr(value, part, None)
    return value is x


@cache
def table() -> Mapping[str, str]:
    """Names of before, and what they are called now."""
    with resources.files(PACKAGE).joinpath("renamed.tsv").open(encoding="utf-8") as file:
        return {row["before"]: row["now"] for row in csv.DictReader(file, delimiter="\t")}


@cache
def first_names() -> Mapping[str, str]:
    """The first name of each class that was renamed since names say no module."""
    first: dict[str, str] = {}
    for before, now in table().items():
        if ":" not in before:
            first.setdefault(now, before)
    return first


@cache
def former_fields() -> Mapping[str, Mapping[str, str]]:
    """By class, the first name of each field that was renamed; `renamed_fields.tsv` has them all."""
    by_class: dict[str, dict[str, str]] = {}
    with resources.files(PACKAGE).joinpath("renamed_fields.tsv").open(encoding="utf-8") as file:
        for row in csv.DictReader(file, delimiter="\t"):
            by_class.setdefault(row["class"], {})[row["now"]] = row["before"]
    return by_class


def former_field(cls: type, name: str) -> str:
    """What a field of a class of this package was called first, as digests have it."""
    own = cls.__module__.partition(".")[0] == PACKAGE
    return former_fields().get(cls.__name__, {}).get(name, name) if own else name


@cache
def places() -> Mapping[str, str]:
    """The module of every class of the package, by the class's name, read from the sources: nothing
    is imported.

    Raises ValueError for a name that two modules define.
    """
    root = Path(str(resources.files(PACKAGE)))
    modules: dict[str, str] = {}
    for path in sorted(root.rglob("*.py")):
        parts = path.relative_to(root.parent).with_suffix("").parts
        module = ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
        for name in CLASS_LINE.findall(path.read_text(encoding="utf-8")):
            if name in modules:
                raise ValueError(
                    f"two classes are called {name}: in {modules[name]} and in {module}; rename one"
                )
            modules[name] = module
    return modules
