"""Loads a user's own Python file. It runs with the user's rights, as if they had started it; it is
never model text.

What a program hands over as a value has a name too, so that settings can hold it: `FILE.py:NAME`
where a module has it, which another process loads from there, else `given:NAME`, which only the
program itself can give again.
"""

from __future__ import annotations

import copy
import inspect
import re
import sys
import traceback
from collections.abc import Mapping
from dataclasses import replace
from functools import partial, partialmethod
from itertools import count
from pathlib import Path
from types import ModuleType
from typing import Any

from palaestra.errors import UserError
from palaestra.services.tools.names import GIVEN
from palaestra.suggest import suggestion
from palaestra.tasks.user_modules import import_file
from palaestra.types import Task

VALUES: dict[str, Any] = {}  # what programs handed over, by name


def spec_of(value: Any) -> str:
    """A name by which `load` finds a value of this program."""
    own = getattr(value, "__name__", type(value).__name__)
    home = getattr(value, "__module__", "")
    module = sys.modules.get(home)
    file = getattr(module, "__file__", None) or ""
    # a script would run once more if it were loaded by its file
    stored = home != "__main__" and getattr(module, own, None) is value
    if stored and re.fullmatch(r"[^()*+,]+\.py", file):
        VALUES[f"{file}:{own}"] = value
        return f"{file}:{own}"
    word = re.sub(r"\W+", "_", own).strip("_")
    names = (f"{GIVEN}{word}{f'_{n}' if n else ''}" for n in count())
    name = next(n for n in names if VALUES.get(n, value) is value)
    VALUES[name] = value
    return name


def load(spec: str, what: str) -> Any:
    """The object that `FILE.py:NAME` names; `what` ("function", "class") is for the messages."""
    if spec in VALUES:
        return VALUES[spec]
    if spec.startswith(GIVEN):
        raise UserError(
            f"{spec}: a value of another program; hand it over again, in a program that calls "
            f"palaestra, or put it into a file and name it FILE.py:NAME"
        )
    file, colon, name = spec.rpartition(":")
    if not colon or not file or not name:
        raise UserError(f"{spec!r}: name the file and the {what}, as FILE.py:NAME")
    module = module_of(str(path_of(file)))
    if not hasattr(module, name):
        own = [
            n
            for n, v in vars(module).items()
            if callable(v) and getattr(v, "__module__", "") == module.__name__
        ]
        hint = suggestion(name, own) or (
            f"; it has {', '.join(own)}" if own else "; it defines none"
        )
        raise UserError(f"{file}: no {what} {name!r}{hint}")
    return getattr(module, name)


def path_of(file: str) -> Path:
    path = Path(file).expanduser().resolve()
    if path.is_file() and path.suffix == ".py":
        return path
    if path.is_file():
        raise UserError(f"{file}: not a Python file; its name must end in .py")
    near = suggestion(
        path.name, [p.name for p in path.parent.glob("*.py")] if path.parent.is_dir() else []
    )
    raise UserError(f"{file}: no such file{near or f' (looked in {path.parent})'}")


def module_of(path: str) -> ModuleType:
    """The module of a file, run once, though it names itself. Files beside it can be imported by
    it.
    """
    try:
        return import_file(path)
    except SyntaxError as error:
        raise UserError(
            f"{error.filename or path}:{error.lineno}: {error.msg}; mend the syntax"
        ) from None
    except (Exception, SystemExit) as error:
        raise UserError(f"{locate_error(error, path)} while it was loaded") from error


def locate_error(error: BaseException, path: str) -> str:
    """`FILE:LINE: Kind: message`, at the last line of the user's own file that the error passed. Of
    what the user can mend the message says enough.
    """
    frames = traceback.extract_tb(error.__traceback__)
    own = [f for f in frames if Path(f.filename).resolve() == Path(path).resolve()]
    line = f":{own[-1].lineno}" if own else ""
    reason = " ".join(str(error).split())[:300]
    kind = [] if isinstance(error, UserError) and reason else [type(error).__name__]
    place = [] if path == "?" else [f"{path}{line}"]
    return ": ".join([*place, *kind, *([reason] if reason else [])])


def file_of(function: Any) -> str:
    """Where a function or class was written, the function of a partial, or the class of another
    object that is called; "?" = nowhere.
    """
    function = inspect.unwrap(function)
    while isinstance(function, partial | partialmethod):
        function = inspect.unwrap(function.func)
    for written in (function, type(function)):
        try:
            return inspect.getsourcefile(written) or "?"
        except TypeError:  # it stands in no file
            continue
    return "?"


def accepts(function: Any, *names: str) -> bool:
    """Whether it can be called with that many positional arguments."""
    try:
        inspect.signature(function).bind(*names)
    except (TypeError, ValueError):
        return False
    return True


FIXED = (str, int, float, bool, bytes, type(None))  # values that no code can change


def own_data(value: Any) -> Any:
    """A value of a record that user code may change without changing the record: a deep copy of
    what can be changed. An object that cannot be copied, such as a lock, stays the same object.
    """
    if isinstance(value, FIXED):
        return value
    try:
        return copy.deepcopy(value)
    except Exception:  # whatever a strange object raises
        return value


def with_own_data(task: Task) -> Task:
    """The task with an answer and columns of its own; the task itself where nothing can be
    changed.
    """
    if isinstance(task.answer, FIXED) and all(isinstance(v, FIXED) for v in task.meta.values()):
        return task
    columns: Mapping[str, Any] = {k: own_data(v) for k, v in task.meta.items()}
    return replace(task, answer=own_data(task.answer), meta=columns)
