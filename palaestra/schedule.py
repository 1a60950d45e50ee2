"""Numbers that change with the step. They stand in a recipe where a number would; `resolve`
replaces them before the step.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import fields, is_dataclass, replace
from typing import Any, ClassVar, Protocol, Self, runtime_checkable

from palaestra.errors import UserError
from palaestra.types import stage


@runtime_checkable
class Scheduled(Protocol):
    """A number as a function of the step."""

    def at(self, step: int) -> float: ...


@runtime_checkable
class FitsRun(Protocol):
    """A part with a size that follows the run's where it is left open, such as a pool that keeps as
    many groups as a step draws.
    """

    def fit_to_run(self, prompts: int, max_tokens: int) -> Self:
        """With numbers in place of what is open.

        Args:
            prompts: that a step draws.
            max_tokens: of an answer, or of one turn.
        """
        ...


@runtime_checkable
class HasClock(Protocol):
    """A part that acts otherwise after some steps. A canary of two steps sets the field so that it
    does at the second one.
    """

    clock: ClassVar[str]  # the field that says when


@runtime_checkable
class HasSmallest(Protocol):
    """A part that can be made small and still does all that it does: a learner with few updates, a
    program with few rounds. `--smoke` and canaries set these fields to at most these numbers.
    """

    smallest: ClassVar[Mapping[str, float]]  # by field


@stage
class Linear:
    """From `start` to `end` over `steps` steps, then constant."""

    start: float
    end: float
    steps: int
    clock: ClassVar[str] = "steps"

    def at(self, step: int) -> float:
        return self.start + (self.end - self.start) * min(1.0, step / max(self.steps, 1))


@stage
class Cosine:
    """Half a cosine from `start` to `end` over `steps` steps, then constant."""

    start: float
    end: float
    steps: int
    clock: ClassVar[str] = "steps"

    def at(self, step: int) -> float:
        done = min(1.0, step / max(self.steps, 1))
        return self.end + (self.start - self.end) * (1 + math.cos(math.pi * done)) / 2


@stage
class Exponential:
    """start * (end / start)^(step / steps) over `steps` steps, then `end`; both positive."""

    start: float
    end: float
    steps: int
    clock: ClassVar[str] = "steps"

    def at(self, step: int) -> float:
        return self.start * (self.end / self.start) ** min(1.0, step / max(self.steps, 1))


@stage
class Jump:
    """`start` before `step`, `end` from then on."""

    start: float
    end: float
    step: int
    clock: ClassVar[str] = "step"

    def at(self, step: int) -> float:
        return self.end if step >= self.step else self.start


@stage
class Staircase:
    """levels[min(step // every, len - 1)]: a level for `every` steps, then the next; the last one
    stays. Horizons that grow (ScalingInter, arXiv:2509.08755).
    """

    levels: tuple[float, ...]
    every: int
    clock: ClassVar[str] = "every"

    def __post_init__(self) -> None:
        if not self.levels or self.every < 1:
            raise UserError("a staircase needs a level, and at least one step on each")

    def at(self, step: int) -> float:
        return self.levels[min(step // self.every, len(self.levels) - 1)]


SETTLED = 1e-3  # of its way, from where on a schedule that has no end is taken to be there
FAR = 1 << 24  # steps


def settling_step(x: Scheduled) -> int:
    """The first step from which on a schedule stays where it ends, but for `SETTLED` of its way."""
    start, end = x.at(0), x.at(FAR)
    near = lambda step: abs(x.at(step) - end) <= SETTLED * abs(start - end)
    low, high = 0, FAR
    while low < high:
        middle = (low + high) // 2
        low, high = (low, middle) if near(middle) else (middle + 1, high)
    return low


@stage
class Sigmoid:
    """From `start` to `end`, halfway at step `middle`: 1 / (1 + exp((step - middle) / width)) of
    the way is left. The share of criteria that are shown in RuscaRL (arXiv:2508.16949).
    """

    start: float
    end: float
    middle: float
    width: float = 1.0
    clock: ClassVar[str] = "middle"

    def __post_init__(self) -> None:
        check_bounds("Sigmoid.width", self.width, above=0)

    def at(self, step: int) -> float:
        left = (1 - math.tanh((step - self.middle) / self.width / 2)) / 2
        return self.end + (self.start - self.end) * left


def check_bounds(
    name: str, x: Any, *, least: float = -math.inf, above: float = -math.inf, most: float = math.inf
) -> None:
    """Raises UserError for a number out of its range. A schedule is checked where it becomes a
    number, no number at None.
    """
    if x is None or isinstance(x, Scheduled) or (x >= least and x > above and x <= most):
        return
    asked = [
        *([f"at least {least:g}"] if least > -math.inf else []),
        *([f"above {above:g}"] if above > -math.inf else []),
        *([f"at most {most:g}"] if most < math.inf else []),
    ]
    raise UserError(f"{name} is {x}; it must be {' and '.join(asked)}")


SCHEDULES: Mapping[str, type[Any]] = {
    "linear": Linear,
    "cosine": Cosine,
    "exponential": Exponential,
    "jump": Jump,
    "staircase": Staircase,
    "sigmoid": Sigmoid,
}


def read(text: str) -> Scheduled | None:
    """The schedule that text names with its numbers: "cosine(1e-4, 0, 100)" and three others alike,
    "sigmoid(1, 0, 70, 3)" with its width, "staircase(4, 8, 16, 100)" with its levels and the steps
    on each. None = it names none. Raises `ValueError`.
    """
    name, opened, rest = text.strip().partition("(")
    if name not in SCHEDULES or not opened or not rest.endswith(")"):
        return None
    *given, last = rest[:-1].split(",")
    if SCHEDULES[name] is Staircase:
        return Staircase(tuple(map(_number, given)), int(last))
    if SCHEDULES[name] is Sigmoid:
        start, end, middle = map(float, given)
        return Sigmoid(start, end, middle, float(last))
    start, end = given
    return SCHEDULES[name](float(start), float(end), int(last))


def _number(text: str) -> float:
    """A whole one stays whole: a count that follows a schedule is one."""
    value = float(text)
    return int(value) if value.is_integer() else value


def resolve(part: Any, step: int) -> Any:
    """The same value with every schedule in it replaced by its number; unchanged parts
    are shared.
    """
    return change_inside(part, lambda x: x.at(step) if isinstance(x, Scheduled) else x)


def fit_to_run(part: Any, prompts: int, max_tokens: int) -> Any:
    """The same value with every size in it that follows the run's replaced by its number: see
    `FitsRun`.
    """
    fit = lambda x: x.fit_to_run(prompts, max_tokens) if isinstance(x, FitsRun) else x
    return change_inside(part, fit)


def change_inside(part: Any, change: Callable[[Any], Any]) -> Any:
    """A value with `change` made of it and then of all that is inside; unchanged parts are shared."""
    part = change(part)
    if is_dataclass(part) and not isinstance(part, type):
        changed = {}
        for f in fields(part):
            before = getattr(part, f.name)
            after = change_inside(before, change)
            if after is not before:
                changed[f.name] = after
        return replace(part, **changed) if changed else part
    if isinstance(part, tuple):
        items = tuple(change_inside(p, change) for p in part)
        return part if all(a is b for a, b in zip(items, part, strict=True)) else items
    if isinstance(part, Mapping):
        entries = {k: change_inside(v, change) for k, v in part.items()}
        return part if all(entries[k] is part[k] for k in part) else entries
    return part
