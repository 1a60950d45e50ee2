"""What a user's function says after a step: whether the run ends, numbers of its own for the log, and
fields of the recipe for the steps that follow.

Fields that it has set are part of the run's state, so a run that goes on from a checkpoint has them.
They stand over those of the settings.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import field
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar

from palaestra.errors import UserError
from palaestra.schedule import Scheduled
from palaestra.suggest import suggestion_or_all
from palaestra.types import Metrics, State, value_class
from palaestra.values import find, override, walk

if TYPE_CHECKING:
    from palaestra.method import Recipe

R = TypeVar("R", bound="Recipe")
# of a user: takes the number of a step and its metrics; returns what `answer_of` reads
OnStep: TypeAlias = Callable[[int, Metrics], object]
KEYS = ("stop", "log", "set")
OWN_LINES = ("step", "evaluation", "evaluations", "changed", "set")  # of metrics.jsonl, no numbers
# what every step reads anew, as full paths: what may also follow a schedule
EACH_STEP = re.compile(
    r"(draw|collect|pool|observe)\..*"
    r"|schedule\.(prompts|rounds|max_age)"
    r"|learners\.[^.]+\.((credit|objective|update)\..*|optimiser\.(lr|weight_decay|clip_norm|warmup))"
)


@value_class
class SteeringAnswer:
    """What the function said.

    Args:
        stop: the run ends after this step.
        log: numbers by name.
        set: fields by their full paths: numbers, or schedules as text.
    """

    stop: bool = False
    log: Mapping[str, float] = field(default_factory=dict)
    set: Mapping[str, bool | float | str] = field(default_factory=dict)


def answer_of(said: object, recipe: Recipe, metrics: Metrics) -> SteeringAnswer:
    """What `on_step` returned: True ends the run; a dictionary may hold `stop`, `log` and `set`; all
    else says nothing. Raises UserError for what cannot be logged or set.
    """
    if not isinstance(said, Mapping):
        return SteeringAnswer(stop=said is True)
    for key in said:
        if key not in KEYS:
            raise UserError(f"on_step returned {key!r}{suggestion_or_all(str(key), KEYS)}")
    return SteeringAnswer(
        stop=said.get("stop", False) is True,
        log={str(k): _logged(str(k), x, metrics) for k, x in (said.get("log") or {}).items()},
        set=dict(_settable(recipe, str(k), x) for k, x in (said.get("set") or {}).items()),
    )


def _logged(name: str, given: Any, metrics: Metrics) -> float:
    if name in metrics or name in OWN_LINES:
        raise UserError(f"on_step logs {name!r}, which the run logs itself; take another name")
    try:
        return float(given)
    except (TypeError, ValueError):
        raise UserError(f"on_step logs {name}={given!r}; it takes a number") from None


def _settable(recipe: Recipe, path: str, given: Any) -> tuple[str, bool | float | str]:
    full = find(recipe, path, given)
    if not EACH_STEP.fullmatch(full):
        raise UserError(
            f"on_step sets {full}, which is read once, before the first step"
            + ("; return {'stop': True} to end the run" if full == "schedule.steps" else "")
        )
    plain = given if isinstance(given, bool | int | float | str) else _number(full, given)
    now = dict(walk(override(recipe, full, plain)))[full]
    if not isinstance(now, bool | int | float | Scheduled):
        raise UserError(f"on_step sets {full}={given!r}; it sets numbers and schedules alone")
    return full, plain


def _number(path: str, given: Any) -> float:
    """Of an array or a tensor with one number."""
    try:
        return given.item()
    except (AttributeError, RuntimeError, ValueError):
        raise UserError(
            f"on_step sets {path}={given!r}; write a number, or a schedule as text, "
            '"linear(1e-4,0,100)"'
        ) from None


def keep_set(state: State, answer: SteeringAnswer) -> None:
    """Adds what was set to the run's state."""
    if answer.set:
        state["run"] = {**state["run"], "set": {**state["run"].get("set", {}), **answer.set}}


def with_set(recipe: R, state: State) -> R:
    """The recipe with the fields that `on_step` has set so far."""
    for path, given in state["run"].get("set", {}).items():
        recipe = override(recipe, path, given)
    return recipe
