"""Settings from files and from what a program gives, checked, and as `config.toml` keeps them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, fields
from pathlib import Path
from typing import Any, get_type_hints

from palaestra import values
from palaestra.context import Runnable
from palaestra.errors import UserError
from palaestra.settings import overrides
from palaestra.settings.fields import Settings
from palaestra.settings.rewards import reward_text
from palaestra.store.checkpoint import write_atomic
from palaestra.trackers.registry import tracker_names
from palaestra.worlds.toolbox import tool_names


def from_file(path: Path) -> dict[str, Any]:
    """The settings of a TOML file. Raises UserError with the line of an unknown one or a value of
    another type.
    """
    return values.from_toml(path, get_type_hints(Settings))


def check_types(given: Mapping[str, Any]) -> dict[str, Any]:
    """Settings as their declared types. Raises UserError for a value of another type; unknown names
    are left as they are.
    """
    known = get_type_hints(Settings)
    metavars = {f.name: f.metadata.get("metavar") for f in fields(Settings)}
    read: dict[str, Any] = {}
    for name, x in given.items():
        x = str(x) if isinstance(x, Path) and known.get(name) is str else x
        x = reward_text(x) if name == "reward" else x
        x = tool_names(x) if name == "tools" else x
        x = columns_text(x) if name == "columns" else x
        x = tracker_names(x) if name == "track" else x
        x = (x,) if name == "exams" and isinstance(x, str) else x
        if known.get(name) is str and not isinstance(x, str):
            form = ", ".join(filter(None, ("text", metavars[name])))
            raise UserError(f"{name} takes {form}, not a {type(x).__name__}")
        read[name] = values.parse(x, known[name], name) if name in known else x
    return read


def columns_text(given: Any) -> Any:
    """What each column is read as, as on the command line, where it is given as a mapping."""
    if not isinstance(given, Mapping):
        return given
    for column, use in given.items():
        if not (isinstance(column, str) and isinstance(use, str)):
            raise UserError(f"columns: {column!r}: {use!r} is no pair of texts")
        if {",", "="} & {*column, *use}:
            raise UserError(
                f"columns: {column!r}: {use!r} has a comma or =, which separate columns; write a "
                "function of a row, clean.py:row"
            )
    return ",".join(f"{column}={use}" for column, use in given.items())


def write_settings(out: Path, settings: Settings, recipe: Runnable) -> None:
    """The run's complete configuration."""
    whole = {k: v for k, v in asdict(settings).items() if v not in (None, "", ())}
    if not settings.track:
        del whole["track_seconds"]
    if not settings.tools:
        whole = {k: v for k, v in whole.items() if not k.startswith("tool_")}
    if not settings.agent:
        whole = {k: v for k, v in whole.items() if not k.startswith("agent_")}
    leaves, takes = values.flatten(recipe), overrides.arguments(settings.recipe)
    # a leaf stands under its full path only: what a resumed run sets by a shorter one must come
    # after it
    others = {
        k: v for k, v in settings.set.items() if k in takes or values.find(recipe, k) not in leaves
    }
    whole["set"] = {**others, **leaves}
    write_atomic(out / "config.toml", values.to_toml(whole))
