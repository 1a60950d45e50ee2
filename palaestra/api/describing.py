"""What `palaestra guide` does: a description of a simulator, by a language model or to be filled in."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

from palaestra.control.description import (
    SimulatorDescription,
    ask_for_description,
    blank_description,
    manual_of,
    sample_games,
)
from palaestra.control.named import simulator_by_name
from palaestra.errors import UserError
from palaestra.run.setup import context
from palaestra.services.chat.named import client_from_text
from palaestra.settings.fields import Settings
from palaestra.values import to_toml


def describe_simulator(spec: str, goal: str, asked: str, file: Path) -> SimulatorDescription:
    """Writes a description of a simulator as TOML.

    Args:
        spec: gymnasium:ID or FILE.py:NAME.
        goal: what is wanted, in words.
        asked: who gives the names, as `client_from_text` reads it; "" = they are numbered.
        file: a new one; what `spec` names is seen from its folder.

    Raises:
        UserError: what was given cannot be read, or the file is there already.
    """
    if file.exists():
        raise UserError(f"{file} is there already; name another file with --out")
    sim = simulator_by_name(spec)
    games = sample_games(sim, ("guide",))
    description = blank_description(sim, seen_from(file, spec), goal, games)
    if asked:
        source, model = client_from_text(asked, "asked")
        ctx = None
        if model:
            ctx = context(Settings(), talk=False)
            ctx.models["asked"] = ctx.load(model)
        description = asyncio.run(
            ask_for_description(source.open(ctx), description, manual_of(sim), games)
        )
    try:
        file.write_text(to_toml(description.model_dump()), encoding="utf-8")
    except OSError as error:
        raise UserError(f"cannot write {file}: {error.strerror}") from None
    return description


def seen_from(file: Path, spec: str) -> str:
    """What names a simulator, its file as it is seen from the description's folder."""
    path, colon, name = spec.rpartition(":")
    if not colon or not path.endswith(".py"):
        return spec
    own = Path(path).expanduser().resolve()
    return f"{os.path.relpath(own, file.resolve().parent)}:{name}"
