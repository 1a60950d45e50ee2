"""Whether a world that --env names has the settings that stand behind its name."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import MISSING, fields
from typing import Any

from palaestra.errors import UserError


def check_world_settings(env: str, world: type, given: Mapping[str, Any]) -> None:
    """Raises UserError for a setting that a world named by --env does not have."""
    taken = {f.name: f.default for f in fields(world) if f.default is not MISSING and f.compare}
    for name, value in given.items():
        if name not in taken or type(value) not in (type(taken[name]), int):
            raise UserError(
                f"--env {env}: {name}={value} is no setting of the {env.partition('(')[0]}; it takes "
                f"{', '.join(f'{k}={x}' for k, x in taken.items() if isinstance(x, int | float))}"
            )
