"""Environments of other libraries by name: `gym:FrozenLake-v1(is_slippery=False)`, and those of a
file in verifiers' form, `FILE.py:load_environment(level=2)`.

Settings in brackets that the adapter has (`retries`, `solved`, `against`, ...) are the adapter's, all
others go to the library.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from typing import Any, get_type_hints

from palaestra import values
from palaestra.errors import UserError
from palaestra.tasks.spec import parse_alone
from palaestra.worlds.adapters.agentgym import AgentGymWorld
from palaestra.worlds.adapters.base import AdaptedWorld
from palaestra.worlds.adapters.gymnasium import GymnasiumWorld
from palaestra.worlds.adapters.openenv import OpenEnvWorld
from palaestra.worlds.adapters.pettingzoo import PettingZooWorld
from palaestra.worlds.adapters.rubrics import is_in_a_file, is_installed, rubric_world
from palaestra.worlds.adapters.scienceworld import ScienceWorldTask
from palaestra.worlds.adapters.spiel import SpielWorld
from palaestra.worlds.adapters.textarena import TextArenaWorld
from palaestra.worlds.adapters.textworld import TextWorldGames
from palaestra.worlds.adapters.verifiers import VerifiersWorld

ADAPTERS: Mapping[str, type[AdaptedWorld]] = {
    "agentgym": AgentGymWorld,
    "gym": GymnasiumWorld,
    "openenv": OpenEnvWorld,
    "pettingzoo": PettingZooWorld,
    "scienceworld": ScienceWorldTask,
    "spiel": SpielWorld,
    "textarena": TextArenaWorld,
    "textworld": TextWorldGames,
    "verifiers": VerifiersWorld,
}
IN_PROGRAMS = ("settings", "render", "read")  # what text does not say


def is_adapted(spec: str) -> bool:
    """Whether a name is one of another library's environments."""
    return (spec.partition(":")[0] in ADAPTERS and ":" in spec) or is_in_a_file(spec)


def world_by_name(spec: str) -> AdaptedWorld:
    """The world that `PREFIX:NAME(setting=value, ...)` names. Raises UserError where there is none,
    the library is missing, or a setting does not fit.
    """
    prefix, _, rest = spec.partition(":")
    if is_in_a_file(spec):
        prefix, rest = "verifiers", spec
    kind = ADAPTERS[prefix]
    part = parse_alone(rest, f"{prefix}:NAME or {prefix}:NAME(setting=value)")
    names = [f.name for f in fields(kind) if f.init]
    address = next(f.name for f in fields(kind) if f.init and not f.kw_only)
    hints = get_type_hints(kind)
    own: dict[str, Any] = {}
    for key, given in part.settings.items():
        if given in ("true", "false"):
            raise UserError(f"{spec!r}: write {key}={given.capitalize()}")
        if key in names and key not in (address, *IN_PROGRAMS):
            text = isinstance(given, str) and key in ("against", "teacher")
            own[key] = given if text else values.parse(given, hints[key], f"{prefix}:...({key})")
    others = tuple((k, v) for k, v in part.settings.items() if k not in own)
    if prefix == "verifiers" and (is_in_a_file(part.name) or is_installed(part.name)):
        return rubric_world(part.name, others, **own)
    return kind(**{address: part.name, "settings": others}, **own)
