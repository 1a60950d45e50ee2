"""Several sources of problems as one, and the string form of it:
`rg:chain_sum(max_terms=3)*2+rg:countdown+chain`.
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Collection, Mapping
from dataclasses import fields, is_dataclass, replace
from fractions import Fraction
from functools import lru_cache
from typing import Any

import numpy as np

from palaestra.abilities import split_size
from palaestra.errors import UserError
from palaestra.suggest import no_setting, suggestion
from palaestra.tasks.gym import Gym
from palaestra.tasks.spec import SpecPart, parse_spec, write_part
from palaestra.types import Task, Tasks, rng_of, stage

BLOCK_MOST = 100_000  # tasks in a block, which holds every part in its exact share
LEAST_WEIGHT = 0.001


@stage
class Mixture:
    """Parts in the shares of their weights: every block holds each part in its exact share, in an
    order of its own.

    Endless. A finite part starts over, in a fresh order, when all of it was given out.
    """

    parts: tuple[tuple[Tasks, float], ...]
    size: int | None = None

    def __post_init__(self) -> None:
        names = [part.name for part, _ in self.parts]
        if not names:
            raise UserError("a mixture needs at least one part")
        if twice := sorted({n for n in names if names.count(n) > 1}):
            raise UserError(
                f"the mixture has {twice[0]!r} twice; give it once, with the sum of the weights"
            )
        counts(tuple(w for _, w in self.parts))

    @property
    def name(self) -> str:
        return "+".join(
            part.name if weight == 1 else f"{part.name}*{weight:g}" for part, weight in self.parts
        )

    @property
    def test_size(self) -> int | None:
        """How many held-out tasks there are before a finite part would repeat one; None
        = endless.
        """
        share = counts(tuple(w for _, w in self.parts))
        ends = []
        for i, (part, _) in enumerate(self.parts):
            n = split_size(part, "test")
            if n is not None:
                places = np.flatnonzero(block(self.name, "test", n // share[i], share) == i)
                ends.append(n // share[i] * sum(share) + int(places[n % share[i]]))
        return min(ends, default=None)

    def task(self, split: str, index: int) -> Task:
        share = counts(tuple(w for _, w in self.parts))
        number, at = divmod(index, sum(share))
        order = block(self.name, split, number, share)
        i = int(order[at])
        return part_task(self.parts[i][0], split, number * share[i] + int((order[:at] == i).sum()))


def part_task(part: Tasks, split: str, nth: int) -> Task:
    """The nth task that a part of a mixture gives, under the part's name. A finite part starts over
    in a fresh order.
    """
    n = split_size(part, split)
    task = part.task(
        split, nth if n is None else int(epoch_order(part.name, split, nth // n, n)[nth % n])
    )
    identity = task.id if task.id.startswith(f"{part.name}/") else f"{part.name}/{task.id}"
    return replace(task, id=identity, domain=part.name)


@lru_cache(maxsize=64)
def counts(weights: tuple[float, ...]) -> tuple[int, ...]:
    """The smallest whole numbers in the proportion of the weights (each taken to three digits after
    the point).
    """
    for weight in weights:
        if not (math.isfinite(weight) and weight >= LEAST_WEIGHT):
            raise UserError(
                f"a part's weight is {weight}; it must be a number of at least {LEAST_WEIGHT}"
            )
    exact = [Fraction(w).limit_denominator(1000) for w in weights]
    scale = math.lcm(*(f.denominator for f in exact))
    whole = [int(f * scale) for f in exact]
    whole = [w // math.gcd(*whole) for w in whole]
    if sum(whole) > BLOCK_MOST:
        raise UserError(
            f"the weights {', '.join(map(str, weights))} have no common measure; use simpler "
            "numbers, e.g. 2 and 1"
        )
    return tuple(whole)


@lru_cache(maxsize=64)
def block(name: str, split: str, number: int, share: tuple[int, ...]) -> np.ndarray:
    """[L] which part each task of a block comes from."""
    return rng_of(("mixture", name, split, number)).permutation(
        np.repeat(np.arange(len(share)), share)
    )


@lru_cache(maxsize=64)
def epoch_order(name: str, split: str, epoch: int, n: int) -> np.ndarray:
    """[n] the order of a finite part in an epoch."""
    return rng_of(("epoch", name, split, epoch)).permutation(n)


def parse_tasks(
    spec: str, registry: Mapping[str, Callable[..., Any]], known: Collection[str] = ()
) -> Any:
    """The tasks a string names. `registry` makes parts by name; `known` are names that exist but
    cannot be mixed.
    """
    parts = [
        (_make(p, spec, registry, known), p.weight) for p in parse_spec(spec, "task", LEAST_WEIGHT)
    ]
    return (
        parts[0][0]
        if len(parts) == 1
        else Mixture(tuple((p, 1.0 if w is None else w) for p, w in parts))
    )


def _make(
    part: SpecPart, spec: str, registry: Mapping[str, Callable[..., Any]], known: Collection[str]
) -> Any:
    name = part.name
    if name.startswith("rg:"):
        return _gym(name.removeprefix("rg:"), part.settings)
    if name in registry:
        return _make_part(name, registry[name], part.settings)
    if name in known:
        raise UserError(
            f"{name!r} is an environment, which stands alone: it cannot be part of {spec!r}"
        )
    names = [*registry, *known]
    near = (
        suggestion(name, names) or f"; there are {', '.join(names)}, and rg:NAME for reasoning-gym"
    )
    raise UserError(f"no task {name!r}{near}")


def _gym(generator: str, settings: Mapping[str, Any]) -> Gym:
    params = tuple(sorted((k, v) for k, v in settings.items() if k != "difficulty"))
    return Gym(generator, params=params, difficulty=settings.get("difficulty"))


def _make_part(name: str, factory: Callable[..., Any], settings: Mapping[str, Any]) -> Any:
    """A part by its factory; with settings its name says so, as two parts of a mixture must differ
    in name.
    """
    takes = [p for p in inspect.signature(factory).parameters if p not in ("name", "size")]
    for key in settings:
        if key not in takes:
            raise UserError(no_setting(f"task {name!r}", key, takes))
    try:
        made = factory(**settings)
        if settings:
            made.task("train", 0)  # some show only here that they make no task
    except (ValueError, TypeError, IndexError, KeyError, ArithmeticError, AssertionError) as error:
        raise UserError(f"task {name!r}: {error}; change its settings") from None
    if (
        settings
        and is_dataclass(made)
        and not isinstance(made, type)
        and any(f.name == "name" for f in fields(made))
    ):
        made = replace(made, **{"name": write_part(name, settings.items())})
    return made
