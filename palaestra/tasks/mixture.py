"""Several sources of problems as one, and the string form of it: `rg:chain_sum(max_terms=3)*2+rg:countdown+chain`."""

from __future__ import annotations

import ast
import inspect
import math
import re
from collections.abc import Callable, Collection, Mapping
from dataclasses import fields, is_dataclass, replace
from fractions import Fraction
from functools import lru_cache
from typing import Any

import numpy as np

from palaestra.abilities import split_size
from palaestra.errors import UserError
from palaestra.tasks.gym import Gym
from palaestra.tasks.names import suggestion
from palaestra.types import Task, Tasks, rng_of, stage

BLOCK_MOST = 100_000  # tasks in a block, which holds every part in its exact share
PART = re.compile(r"(?P<name>(?:rg:)?[A-Za-z_][\w-]*)(?P<settings>\(.*\))?\s*(?:\*\s*(?P<weight>[^()*]+))?", re.DOTALL)


@stage
class Mixture:
    """Parts in the shares of their weights: every block holds each part in its exact share, in an order of its own.

    Endless. A finite part starts over, in a fresh order, when all of it was given out.
    """

    parts: tuple[tuple[Tasks, float], ...]
    size: int | None = None

    def __post_init__(self) -> None:
        names = [part.name for part, _ in self.parts]
        if not names:
            raise UserError("a mixture needs at least one part")
        if twice := sorted({n for n in names if names.count(n) > 1}):
            raise UserError(f"the mixture has {twice[0]!r} twice; give it once, with the sum of the weights")
        counts(tuple(w for _, w in self.parts))

    @property
    def name(self) -> str:
        return "+".join(part.name if weight == 1 else f"{part.name}*{weight:g}" for part, weight in self.parts)

    @property
    def test_size(self) -> int | None:
        """How many held-out tasks there are before a finite part would repeat one; None = endless."""
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
        part, nth = self.parts[i][0], number * share[i] + int((order[:at] == i).sum())
        n = split_size(part, split)
        task = part.task(split, nth if n is None else int(epoch_order(part.name, split, nth // n, n)[nth % n]))
        identity = task.id if task.id.startswith(f"{part.name}/") else f"{part.name}/{task.id}"
        return replace(task, id=identity, domain=part.name)


@lru_cache(maxsize=64)
def counts(weights: tuple[float, ...]) -> tuple[int, ...]:
    """The smallest whole numbers in the proportion of the weights (each taken to three digits after the point)."""
    for weight in weights:
        if not (math.isfinite(weight) and weight >= 0.001):
            raise UserError(f"a part's weight is {weight}; it must be a number of at least 0.001")
    exact = [Fraction(w).limit_denominator(1000) for w in weights]
    scale = math.lcm(*(f.denominator for f in exact))
    whole = [int(f * scale) for f in exact]
    whole = [w // math.gcd(*whole) for w in whole]
    if sum(whole) > BLOCK_MOST:
        raise UserError(
            f"the weights {', '.join(map(str, weights))} have no common measure; use simpler numbers, e.g. 2 and 1"
        )
    return tuple(whole)


@lru_cache(maxsize=64)
def block(name: str, split: str, number: int, share: tuple[int, ...]) -> np.ndarray:
    """[L] which part each task of a block comes from."""
    return rng_of(("mixture", name, split, number)).permutation(np.repeat(np.arange(len(share)), share))


@lru_cache(maxsize=64)
def epoch_order(name: str, split: str, epoch: int, n: int) -> np.ndarray:
    """[n] the order of a finite part in an epoch."""
    return rng_of(("epoch", name, split, epoch)).permutation(n)


def parse_tasks(spec: str, registry: Mapping[str, Callable[..., Any]], known: Collection[str] = ()) -> Any:
    """The tasks a string names. `registry` makes parts by name; `known` are names that exist but cannot be mixed."""
    pieces = split_outside(spec, "+")
    parts = [_part(piece.strip(), spec, registry, known) for piece in pieces]
    return parts[0][0] if len(parts) == 1 else Mixture(tuple(parts))


def split_outside(text: str, separator: str) -> list[str]:
    """Splits where the separator stands outside brackets and quotes."""
    pieces, depth, quote = [""], 0, ""
    for c in text:
        if quote:
            quote = "" if c == quote else quote
        elif c in "'\"":
            quote = c
        depth += 0 if quote else (c in "([{") - (c in ")]}")
        if c == separator and not depth and not quote:
            pieces.append("")
        else:
            pieces[-1] += c
    return pieces


def names_in(spec: str) -> list[str]:
    """The names of the parts of a string such as `a(x=1)*2+b`; of what cannot be read none."""
    matches = (PART.fullmatch(piece.strip()) for piece in split_outside(spec, "+"))
    return [m["name"] for m in matches if m]


def _part(
    piece: str, spec: str, registry: Mapping[str, Callable[..., Any]], known: Collection[str]
) -> tuple[Any, float]:
    match = PART.fullmatch(piece)
    if match is None:
        what = f"{piece!r} in {spec!r}" if piece else f"an empty part in {spec!r}"
        raise UserError(f"task {what} cannot be read; write NAME, NAME(setting=value) or NAME*2, joined by +")
    name = match["name"]
    settings = _settings(match["settings"] or "()", name)
    if name.startswith("rg:"):
        made = _gym(name.removeprefix("rg:"), settings)
    elif name in registry:
        made = _make_part(name, registry[name], settings)
    elif name in known:
        raise UserError(f"{name!r} is an environment, which stands alone: it cannot be part of {spec!r}")
    else:
        names = [*registry, *known]
        near = suggestion(name, names) or f"; there are {', '.join(names)}, and rg:NAME for reasoning-gym"
        raise UserError(f"no task {name!r}{near}")
    return made, _weight(match["weight"], piece)


def _weight(text: str | None, piece: str) -> float:
    try:
        weight = 1.0 if text is None else float(text)
    except ValueError:
        raise UserError(f"the weight in {piece!r} is no number; write NAME*2") from None
    if not (math.isfinite(weight) and weight >= 0.001):
        raise UserError(f"the weight in {piece!r} must be at least 0.001")
    return weight


def _settings(text: str, name: str) -> dict[str, Any]:
    """`(a=1,b=(2,3))` as keywords; values are Python literals, bare words are text."""
    wanted = f"{name}{text}: write settings as {name}(name=value), values as numbers, 'text' or (1, 2)"
    try:
        call = ast.parse(f"f{text}", mode="eval").body
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        raise UserError(wanted) from None
    if (
        not isinstance(call, ast.Call)
        or not isinstance(call.func, ast.Name)
        or call.args
        or any(not k.arg for k in call.keywords)
    ):
        raise UserError(wanted)
    try:
        return {
            k.arg or "": _hashable(k.value.id if isinstance(k.value, ast.Name) else ast.literal_eval(k.value))
            for k in call.keywords
        }
    except (ValueError, TypeError):
        raise UserError(wanted) from None


def _hashable(value: Any) -> Any:
    if isinstance(value, list | tuple):
        return tuple(_hashable(v) for v in value)
    hash(value)
    return value


def _gym(generator: str, settings: Mapping[str, Any]) -> Gym:
    params = tuple(sorted((k, v) for k, v in settings.items() if k != "difficulty"))
    return Gym(generator, params=params, difficulty=settings.get("difficulty"))


def _make_part(name: str, factory: Callable[..., Any], settings: Mapping[str, Any]) -> Any:
    """A part by its factory; with settings its name says so, as two parts of a mixture must differ in name."""
    takes = [p for p in inspect.signature(factory).parameters if p not in ("name", "size")]
    for key in settings:
        if key not in takes:
            hint = suggestion(key, takes) or (f"; there are {', '.join(takes)}" if takes else "; it has none")
            raise UserError(f"task {name!r} has no setting {key!r}{hint}")
    try:
        made = factory(**settings)
        if settings:
            made.task("train", 0)  # some show only here that they make no task
    except (ValueError, TypeError, IndexError, KeyError, ArithmeticError, AssertionError) as error:
        raise UserError(f"task {name!r}: {error}; change its settings") from None
    if settings and is_dataclass(made) and not isinstance(made, type) and any(f.name == "name" for f in fields(made)):
        made = replace(made, **{"name": f"{name}({','.join(f'{k}={v!r}' for k, v in settings.items())})"})
    return made
