"""Of the parts of a recipe, before anything is sampled: whether each is of the kind that its place
takes, and what was set that can do nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import is_dataclass
from inspect import isbuiltin
from typing import Any

from palaestra.abilities import needs_several
from palaestra.context import Runnable
from palaestra.errors import UserError
from palaestra.method import Recipe
from palaestra.objective.policy import Clipped
from palaestra.pipeline import Pipeline
from palaestra.rollout.collect import Links, Sample, Score
from palaestra.schedule import resolve
from palaestra.settings.fields import Settings
from palaestra.tasks.user_code import accepts
from palaestra.update import Plain
from palaestra.values import walk

CALLED_WITH: Mapping[str, tuple[str, ...]] = {
    "draw": ("ctx", "key", "n", "state"),
    "collect": ("ctx", "key", "group"),
    "pool": ("ctx", "groups", "state"),
    "observe": ("seen", "examples", "state"),
    "credit": ("groups", "signals", "state"),
    "objective": ("out", "batch"),
    "update": ("ctx", "name", "learner", "batch", "state"),
}
LINK = ("x", "table")  # what a link of `pl.chain` is called with


def check_stages(runnable: Runnable, at: str = "") -> None:
    """Raises UserError, of one line, for a part of a recipe that cannot be called as its place calls
    it. Of a pipeline all parts are looked at; of what is neither, nothing.
    """
    if isinstance(runnable, Pipeline):
        for name, part in runnable.parts.items():
            check_stages(part.runnable, f"{at}parts.{name}.runnable.")
    if not isinstance(runnable, Recipe):
        return
    recipe: Recipe = resolve(runnable, 0)
    for field in ("draw", "collect", "pool", "observe"):
        _check(f"{at}{field}", field, getattr(recipe, field))
    for name, learner in recipe.learners.items():
        for field in ("credit", "objective", "update"):
            _check(f"{at}learners.{name}.{field}", field, getattr(learner, field))


def _check(path: str, field: str, part: Any) -> None:
    if isinstance(part, type):
        raise UserError(f"{path}: {part.__name__} is a class; write {part.__name__}(...)")
    if accepts(part, *CALLED_WITH[field]) or isbuiltin(
        part
    ):  # of C, which may not say what it takes
        return
    made = type(part).__name__ if is_dataclass(part) else ""
    if field == "credit" and accepts(part, *LINK):
        called = made or getattr(part, "__name__", repr(part))
        raise UserError(
            f"{path}: {called} is a link of a chain and not a credit of its own; write "
            f"pl.chain({called}{'(...)' if made else ''}), with all links in their order"
        )
    raise UserError(
        f"{path}: {made or repr(part)} cannot be called with ({', '.join(CALLED_WITH[field])}), as "
        "this part of a recipe is"
    )


def describe_lone_answers(runnable: Runnable) -> str:
    """A line if a learner compares the answers to a prompt, and the recipe samples only one."""
    if isinstance(runnable, Pipeline):
        lines = [describe_lone_answers(part.runnable) for part in runnable.parts.values()]
        return next(filter(None, lines), "")
    if not isinstance(runnable, Recipe):
        return ""
    recipe: Recipe = resolve(runnable, 0)
    collect = recipe.collect
    stages = collect.links if isinstance(collect, Links) else (collect,)
    # any other stage may add answers
    plain = all(isinstance(x, Sample | Score) for x in stages)
    if not plain or sum(x.n for x in stages if isinstance(x, Sample)) != 1:
        return ""
    names = [name for name, x in recipe.learners.items() if needs_several(x.credit)]
    if not names:
        return ""
    return (
        f"note: with sample.n=1 learner {names[0]!r} learns nothing, because it compares the "
        "answers to a prompt with one another; set sample.n to 2 or more"
    )


def describe_idle_clip(settings: Settings, before: Runnable, recipe: Runnable) -> str:
    """A line where a recipe's clip range was set and every ratio is 1: weights move once a batch, and
    what they learn from was sampled by themselves from all tokens. `before`: the recipe before its
    fields were set.
    """
    if settings.engine != Settings.engine or settings.cluster:
        return ""  # ratios are not exactly 1, or weights move on in the meantime
    if not (isinstance(before, Recipe) and isinstance(recipe, Recipe)):
        return ""
    if recipe.schedule.lag or any(map(_cuts, (x for _, x in walk(recipe.collect)))):
        return ""
    for name, learner in recipe.learners.items():
        clip, update = learner.objective, learner.update
        own = before.learners[name].objective if name in before.learners else None
        once = isinstance(update, Plain) and update.epochs == update.minibatches == 1
        if once and isinstance(clip, Clipped) and isinstance(own, Clipped):
            for field in ("low", "high"):
                if getattr(clip, field) != getattr(own, field):
                    return (
                        f"note: objective.{field} does nothing with one update a step, where every "
                        "ratio is 1: set update.minibatches or update.epochs above 1, or schedule.lag"
                    )
    return ""


def _cuts(part: Any) -> bool:
    """Whether it samples from some of the tokens only, so that ratios are not 1."""
    return isinstance(part, Sample) and (part.top_k > 0 or part.top_p < 1 or part.min_p > 0)
