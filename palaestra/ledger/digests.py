"""What a cell's numbers depend on: its configuration as a digest, the versions of the package's
parts (`ledger.versions`), and the files of a user's recipe and of plugins.

All three are part of a cell's address. A published result keeps them too: one that was measured
with other versions than today's stays, and its page says so.
"""

from __future__ import annotations

import hashlib
import json
import sys
from collections.abc import Mapping
from dataclasses import MISSING, Field, fields, is_dataclass
from functools import lru_cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import palaestra
from palaestra import catalogue, values
from palaestra.context import Bench, Runnable
from palaestra.errors import UserError
from palaestra.identity import USER_PACKAGE, former_field, name_of
from palaestra.ledger.versions import versions_of
from palaestra.models.load import find
from palaestra.pipeline import Pipeline
from palaestra.plugins import Plugin, file_of, home, providers
from palaestra.run.additions import plugins_used
from palaestra.run.benches import bench_by_name
from palaestra.run.inspect_exam import library_exam
from palaestra.run.setup import bench_of, brings_reward, instruction_of
from palaestra.services.tools.names import is_function
from palaestra.settings.fields import VALUE, Settings
from palaestra.settings.rewards import files_of_spec
from palaestra.tasks.sources import files_of
from palaestra.types import Player

PACKAGE = Path(palaestra.__file__).parent


def sha256(part: Any) -> str:
    """Of plain data."""
    return hashlib.sha256(json.dumps(part, sort_keys=True).encode()).hexdigest()


# ---- configuration

# settings that are told where they are not at their default
ONLY_WHERE_SAID = (
    "lora_alpha", "lora_targets", "skip_bad", "max_prompt_tokens", "overlong", "max_pixels",
    "max_frames", "max_duration", "load_in_4bit", "optim", "break_tool", "data_seed",
)  # fmt: skip


def configuration(
    runnable: Runnable,
    settings: Settings,
    tokens: int,
    samples: int,
    budget: Mapping[str, float] | None = None,
) -> dict[str, Any]:
    """Everything but the seed that was decided before the run, as plain data."""
    try:
        values.digest(runnable)
    except TypeError as error:  # for what has no name to be found by
        raise UserError(str(error)) from None
    files = {
        n: _sum(given) if n == "reward" or len(files_of_spec(given)) > 1 else _file(given)
        for n in ("data", "test_data", "columns", "reward", "env", "docs", "graph")
        if (given := getattr(settings, n))
    }
    parts = runnable.parts if isinstance(runnable, Pipeline) else {}
    of_parts = {
        f"{name}.{n}": _file(given)
        for name, part in parts.items()
        for n, given in part.problem.items()
        if given and n != "task" and isinstance(part.data, str)
    }
    return {
        "recipe": canonical(runnable),
        "task": settings.problem if not files else "",
        **files,
        **of_parts,
        **({"tools": _tools(settings)} if settings.tools else {}),
        **({"agent": [settings.agent, settings.agent_seconds]} if settings.agent else {}),
        "model": model_sha256(settings.model),
        "dtype": settings.precision,
        "lora": settings.lora,
        **{n: getattr(settings, n) for n in ONLY_WHERE_SAID if settings.says(n)},
        "max_tokens": settings.max_tokens,
        "tokens": tokens,
        **({"budget": dict(budget)} if budget else {}),
        "evaluate": settings.evaluate,
        **({"exams": list(settings.exams)} if settings.exams else {}),
        "samples": samples,
        **({"engine": settings.engine} if settings.engine != Settings.engine else {}),
        **({"device": settings.where} if settings.where != "cpu" else {}),
    }


def canonical(x: Any) -> Any:
    """A value as plain data. A field at a default that means "off" is left out: a new option is no
    other configuration.

    So are fields marked `EXACT`: sizes of micro-batches are no part of what is computed (law 2).
    """
    if is_dataclass(x) and not isinstance(x, type):
        field_list = [
            f for f in fields(x) if f.init and not _off(f, x) and "exact" not in f.metadata
        ]
        named = {former_field(type(x), f.name): canonical(getattr(x, f.name)) for f in field_list}
        return [name_of(type(x)), named]
    if isinstance(x, Mapping):
        return {str(k): canonical(v) for k, v in x.items()}
    if isinstance(x, tuple | list):
        return [canonical(v) for v in x]
    if isinstance(x, float):
        return int(x) if x.is_integer() else repr(x)
    return x if x is None or isinstance(x, bool | int | str) else name_of(x)


def _off(f: Field[Any], part: Any) -> bool:
    """At its default, which is nothing, or a stage without settings."""
    value = getattr(part, f.name)
    default = f.default_factory() if f.default_factory is not MISSING else f.default
    return value == default and (not value or canonical(value) == [name_of(type(value)), {}])


def _sum(given: str) -> str:
    """Of what may be joined by +: the content of its only file, else the text with that of all its
    files.
    """
    files = files_of_spec(given)
    return _file(given) if files == [given] else sha256([given, *map(_file, files)])


def _tools(settings: Settings) -> list[Any]:
    """The tools, a function by its file, with the limits of a call."""
    names = [_file(n) if is_function(n) else n for n in settings.tools]
    return [names, settings.tool_turns, settings.tool_seconds, settings.tool_chars]


def _file(given: str) -> str:
    """The content of the files that a flag names, and the part of it; what names none is itself."""
    name, _, part = (
        given.partition(":") if given.endswith(".py") or ".py:" in given else (given, "", "")
    )
    try:
        inside = [hashlib.sha256(p.read_bytes()).hexdigest() for p in files_of(name)]
    except OSError as error:
        raise UserError(f"cannot read {name}: {error.strerror}") from None
    return sha256([part, *inside]) if inside else given


@lru_cache(maxsize=16)
def model_sha256(name: str) -> str:
    """Of weights, settings and tokenizer of a folder; of a model of the hub its id."""
    where = find(name)
    if isinstance(where, str):
        return name
    files = sorted(p for p in where.iterdir() if p.suffix in (".safetensors", ".json", ".jinja"))
    return sha256(
        [
            [p.name, hashlib.sha256(p.read_bytes()).hexdigest()]
            for p in files
            if p.name != "skill.json"
        ]
    )


# ---- parts


def versions(runnable: Runnable, settings: Settings) -> dict[str, int]:
    """The versions of the package's parts that the numbers of a run depend on, where they are not 1."""
    return versions_of(classes(runnable, settings))


def classes(runnable: Runnable, settings: Settings) -> set[str]:
    """The names of the package's classes and functions that the recipe, the problem and the players
    are made of.
    """
    parts = _parts_of(runnable, settings)
    return {_defined(x).__qualname__ for x in parts if _module(x).startswith("palaestra.")}


def own_code_sha256(runnable: Runnable, settings: Settings) -> str:
    """Of the files of a user's recipe and of the plugins that a run uses; "" where there are none."""
    parts = _parts_of(runnable, settings)
    files = [
        *_beside({_module(x) for x in parts}, settings.recipe),
        *_plugins(_added(parts, settings)),
    ]
    return sha256(files) if files else ""


def _parts_of(runnable: Runnable, settings: Settings) -> list[Any]:
    asked = bench_of(
        settings,
        judged=brings_reward(runnable),
        instruction=instruction_of(runnable),
        recipe=runnable,
    )
    parts = _parts(runnable, *asked)
    exams = (task for task in settings.exams if library_exam(task, 1) is None)
    return parts + [x for task in exams for x in _parts(None, *bench_by_name(task))]


def packages(
    runnable: Runnable, settings: Settings, bench: Bench, players: Mapping[str, Player]
) -> list[str]:
    """The other packages, with their versions, that the numbers of a run come from: ["mine 0.1"].

    Args:
        bench, players: what `settings` make, see `bench_of`.
    """
    return sorted({p.package for p in _added(_parts(runnable, bench, players), settings)})


def _parts(runnable: Runnable | None, bench: Bench, players: Mapping[str, Player]) -> list[Any]:
    """Of the recipe and the problem, the small ones inside the large ones too."""
    parts = (runnable, bench.tasks, bench.world, bench.reward, *players.values())
    return [x for p in parts for x in _inside(p)]


def _inside(part: Any) -> list[Any]:
    return [part, *(v for _, v in values.walk(part))]


def check_importable(name: str, recipe: Runnable) -> None:
    """Raises UserError where another process could not have the parts of a recipe that is a value
    of this one, because their modules can't be imported.
    """
    for part in _inside(recipe):
        module = _module(part)
        if module == "__main__" or module.startswith(USER_PACKAGE) or find_spec(module) is None:
            raise UserError(
                f"{name}: {_defined(part).__qualname__} is written in the program itself, and each run "
                "of a comparison is a process of its own; put it into a file that can be imported"
            )


def _added(parts: list[Any], settings: Settings) -> set[Plugin]:
    """The plugins that are named, or whose packages some of the parts are written in."""
    named = plugins_used(settings, parts)
    for plugin in named:
        plugin.load()  # so that its files are known
    return {*named, *providers(map(_module, parts))}


def _beside(modules: set[str], recipe: str) -> list[list[str]]:
    """Of modules that lie in the folder of a user's recipe, or that a program's own recipe is made
    from: their files, each with the digest of its content.
    """
    if recipe != VALUE and not catalogue.is_own_file(recipe):
        return []
    places = (getattr(sys.modules.get(m), "__file__", None) for m in modules)
    files = {Path(f).resolve() for f in places if f}
    folder = Path(recipe).expanduser().resolve().parent
    theirs = lambda p: PACKAGE not in p.parents if recipe == VALUE else p.parent == folder
    mine = sorted(filter(theirs, files))
    return [[p.name, hashlib.sha256(p.read_bytes()).hexdigest()] for p in mine]


def _plugins(added: set[Plugin]) -> list[list[str]]:
    """The packages of plugins with their versions, and their files with the digests of their
    content.
    """
    digests = [[package] for package in sorted({p.package for p in added})]
    for module in sorted({home(p.module) for p in added} - {"", "palaestra"}):
        path = Path(file_of(module))
        folder = path.parent
        files = sorted(folder.rglob("*.py")) if path.name == "__init__.py" else [path]
        digests += [
            [str(f.relative_to(folder)), hashlib.sha256(f.read_bytes()).hexdigest()] for f in files
        ]
    return digests


def _module(x: Any) -> str:
    return str(getattr(_defined(x), "__module__", ""))


def _defined(x: Any) -> Any:
    """What is written somewhere: a function or class itself, of a value its class."""
    return x if callable(x) and hasattr(x, "__qualname__") else type(x)
