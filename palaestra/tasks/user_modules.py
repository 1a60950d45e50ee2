"""How users' own files are imported: each by its path, and each with the modules beside it.

The name of such a module holds its path, so that any process can import it: one that a user's code
spawns, too. What it imports is looked for beside it first, as where a script is run, so that two
files of different folders may each have a `helper.py` of their own.
"""

from __future__ import annotations

import builtins
import importlib
import sys
from collections.abc import Callable, Mapping, Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder, SourceFileLoader
from pathlib import Path
from types import CodeType, ModuleType
from typing import Any

from palaestra.errors import UserError
from palaestra.identity import PACKAGE, USER_PACKAGE, path_of_user_module, user_module_name

IMPORTABLE = str(Path(__file__).parent / "importable")
OWN_FOLDERS: set[str] = set()  # on sys.path for the sake of users' files


def import_file(path: str) -> ModuleType:
    """The module of a file, run once in a process, though it names itself. Raises what the file
    raises.
    """
    folder = str(Path(path).parent)
    OWN_FOLDERS.update({folder} - set(sys.path))
    # behind all others: for what looks modules up by plain names, such as importlib.import_module
    sys.path += [p for p in (IMPORTABLE, folder) if p not in sys.path]
    return importlib.import_module(user_module_name(path))


def import_registrar(make: str, label: str) -> None:
    """Imports the module in front of an id of Gymnasium, MODULE:ID, which registers it. Raises UserError
    where there is none.
    """
    module = make.rpartition(":")[0]
    if not module:
        return
    try:
        importlib.import_module(module)
    except ImportError as error:
        raise UserError(
            f"{label} needs the module {module} ({error}): pip install {module.partition('.')[0]}"
        ) from None


def install_finder() -> None:
    """Makes modules of users' files importable in this process."""
    if not any(type(finder).__name__ == UserFinder.__name__ for finder in sys.meta_path):
        sys.meta_path.insert(0, UserFinder())


class UserFinder(MetaPathFinder):
    """Finds users' files by the paths in their modules' names."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if not fullname.startswith(f"{USER_PACKAGE}."):
            return None
        file = Path(path_of_user_module(fullname))
        folder = file.parent.parent if file.name == "__init__.py" else file.parent
        if fullname.count(".") > 1:
            inner = PathFinder.find_spec(fullname, path)
            if inner is not None and isinstance(inner.loader, SourceFileLoader):
                inner.loader = UserLoader(fullname, inner.loader.path, str(folder))
            return inner
        if file.is_dir():
            spec = ModuleSpec(fullname, None, is_package=True)
            spec.submodule_search_locations = [str(file)]
            return spec
        package = [str(file.parent)] if file.name == "__init__.py" else None
        loader = UserLoader(fullname, str(file), str(folder))
        spec = ModuleSpec(fullname, loader, origin=str(file), is_package=package is not None)
        spec.submodule_search_locations, spec.has_location = package, True
        return spec


class UserLoader(SourceFileLoader):
    """Runs a user's file as it is now; its imports look into `folder` first."""

    def __init__(self, fullname: str, path: str, folder: str) -> None:
        super().__init__(fullname, path)
        self.folder = folder

    def exec_module(self, module: ModuleType) -> None:
        own = {**vars(builtins), "__import__": importer(self.folder)}
        vars(module)["__builtins__"] = own
        super().exec_module(module)

    def get_code(self, fullname: str) -> CodeType:
        """Compiled from the text each time: Python's `__pycache__` takes two texts of one length,
        written within one second, for the same.
        """
        return self.source_to_code(self.get_data(self.path), self.path)


def importer(folder: str) -> Callable[..., Any]:
    """What the statement `import` calls in files of a folder."""

    def import_beside(
        name: str,
        globals: Mapping[str, Any] | None = None,
        locals: Mapping[str, Any] | None = None,
        fromlist: Sequence[str] | None = (),
        level: int = 0,
    ) -> Any:
        top, dot, rest = name.partition(".")
        home = None if level else module_beside(folder, top, (globals or {}).get("__file__"))
        if home is None:
            return builtins.__import__(name, globals, locals, fromlist or (), level)
        try:
            importlib.import_module(home + dot + rest)
            lend_plain_name(top, sys.modules[home])
            if fromlist:
                return builtins.__import__(home + dot + rest, globals, locals, fromlist)
            return sys.modules[home]
        except ModuleNotFoundError as error:
            if error.name is None or not error.name.startswith(home):
                raise
            plain = top + error.name.removeprefix(home)
            raise ModuleNotFoundError(f"No module named {plain!r}", name=plain) from None

    return import_beside


def lend_plain_name(top: str, module: ModuleType) -> None:
    """Makes importlib.import_module(top) find the module too, where nothing else has that name."""
    if top not in sys.modules and PathFinder.find_spec(top, _other_places()) is None:
        sys.modules[top] = module


def module_beside(folder: str, top: str, file: str | None) -> str | None:
    """The full name of the module or package `top` in a folder; None where another one is meant:
    there is none, the interpreter has it built in, or it is the file itself that asks.
    """
    if top in (PACKAGE, USER_PACKAGE) or top in sys.builtin_module_names:
        return None
    spec = PathFinder.find_spec(top, [folder])
    if spec is None:
        return None
    if spec.origin is None:  # a folder without __init__.py: an installed package comes before it
        places = list(spec.submodule_search_locations or ())
        if len(places) != 1 or PathFinder.find_spec(top, _other_places()) is not None:
            return None
        return user_module_name(places[0])
    itself = spec.origin == file and not spec.submodule_search_locations
    if itself or not isinstance(spec.loader, SourceFileLoader):
        return None
    loaded = sys.modules.get(top)  # by the user's program, under its plain name
    if loaded and loaded.__name__ == top and getattr(loaded, "__file__", None) == spec.origin:
        return None
    return user_module_name(spec.origin)


def _other_places() -> list[str]:
    return [p for p in sys.path if p not in OWN_FOLDERS]
