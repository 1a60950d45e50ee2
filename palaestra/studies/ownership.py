"""Whose model a study may attack: one that comes with the package or was trained from it here, or one that the
user declares as theirs.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from palaestra.errors import UserError
from palaestra.models.embedded import FOLDERS
from palaestra.store.folder import read_config
from palaestra.studies.training import run_of

MOST_RUNS = 16  # behind one another


def made_here(ctx: Any, model: str) -> bool:
    """Whether a model comes with the package, or is a checkpoint of a run that began with one which is, or of
    an earlier part of this one.
    """
    for _ in range(MOST_RUNS):
        if model in FOLDERS:
            return True
        run = run_of(model)
        place = Path(model).expanduser()
        if run is None and place.is_dir() and place.resolve().is_relative_to(_whole(ctx)):
            run = _whole(ctx)
        if run is None:
            return False
        model = str(read_config(run).get("model", ""))
    return False


def _whole(ctx: Any) -> Path:
    """The folder of the whole run that a study is, or is a part of; one that is not there without any."""
    folder = Path(ctx.folder).resolve() if ctx.out is not None else Path("/-")
    own = [f for f in (folder, folder.parent) if read_config(f).get("model")]
    return own[0] if own else Path("/-")


def check_owned(ctx: Any, model: str, mine: bool) -> None:
    """Refuses a model that is not the user's to attack.

    Args:
        ctx: of the study, which is told of the declaration.
        model: a name or folder.
        mine: the user declares it as theirs.

    Raises:
        UserError: the model was not made here, and nobody declares it.
    """
    if made_here(ctx, model):
        return
    if not mine:
        raise UserError(
            f"{model} is no toy of this project, and a robustness study attacks what it measures: if the model is "
            "yours, or its owner asked you to test it, say so with mine=true"
        )
    ctx.say(f"{model} is declared as yours (mine=true)")


def refuse_data(ctx: Any, why: str) -> None:
    """Raises UserError where the run was given rows or an environment of the user: a robustness study has
    harmless requests of its own and takes no others.
    """
    config = read_config(_whole(ctx))
    if given := [n for n in ("data", "test_data", "docs", "graph", "env") if config.get(n)]:
        raise UserError(f"--{given[0].replace('_', '-')}: {why}; leave it off")
