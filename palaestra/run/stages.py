"""Of the parts of a recipe, before anything is sampled: whether each is of the kind that its place
takes, and what was set that can do nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from palaestra.errors import UserError
from palaestra.objective.policy import Clipped
from palaestra.run.settings import Settings
from palaestra.step import Recipe
from palaestra.tasks.user_code import accepts
from palaestra.update import Plain
from palaestra.values import find

CALLED_WITH: Mapping[str, tuple[str, ...]] = {
    "draw": ("ctx", "key", "n", "state"),
    "collect": ("ctx", "key", "group"),
    "pool": ("ctx", "groups", "state"),
    "observe": ("seen", "examples", "state"),
    "credit": ("groups", "signals", "state"),
    "objective": ("out", "batch"),
    "update": ("ctx", "name", "learner", "batch", "state"),
}
CLIPS = ("objective.low", "objective.high")
LINK = ("x", "table")  # what a link of `pl.chain` is called with


def check_stages(recipe: Recipe) -> None:
    """Raises UserError, of one line, for a part that cannot be called as its place calls it."""
    for field in ("draw", "collect", "pool", "observe"):
        _check(field, field, getattr(recipe, field))
    for name, learner in recipe.learners.items():
        for field in ("credit", "objective", "update"):
            _check(f"learners.{name}.{field}", field, getattr(learner, field))


def _check(path: str, field: str, part: Any) -> None:
    if accepts(part, *CALLED_WITH[field]):
        return
    called = type(part).__name__ if hasattr(type(part), "__dataclass_fields__") else repr(part)
    if field == "credit" and accepts(part, *LINK):
        raise UserError(
            f"{path}: {called} is a link of a chain and not a credit of its own; write "
            f"pl.chain({called}(...)), with all links in their order"
        )
    raise UserError(
        f"{path}: {called} cannot be called with ({', '.join(CALLED_WITH[field])}), as this part of "
        "a recipe is"
    )


def describe_idle_clip(settings: Settings, recipe: Any) -> str:
    """A line where a clip range was set and every ratio is 1: weights move once a batch, and what
    they learn from was sampled by themselves.
    """
    on_policy = isinstance(recipe, Recipe) and not recipe.schedule.lag and not settings.cluster
    if not on_policy or settings.engine != Settings.engine:
        return ""
    for name, learner in recipe.learners.items():
        update = learner.update
        once = isinstance(update, Plain) and update.epochs == update.minibatches == 1
        if not (once and isinstance(learner.objective, Clipped)):
            continue
        clips = [f"learners.{name}.{c}" for c in CLIPS]
        if given := next((k for k in settings.set if _field(recipe, k) in clips), ""):
            return (
                f"note: {given} does nothing with one update a step, where every ratio is 1: set "
                "update.minibatches or update.epochs above 1, or schedule.lag"
            )
    return ""


def _field(recipe: Recipe, name: str) -> str:
    """The whole path of a field, "" for what is only an argument of the method."""
    try:
        return find(recipe, name)
    except UserError:
        return ""
