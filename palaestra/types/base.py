"""What the nouns are made of: frozen values and stages, keys and the random streams that belong to them, states."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field
from typing import (
    Any,
    TypeAlias,
    TypeVar,
    dataclass_transform,
)

import numpy as np

from palaestra.errors import UserError

C = TypeVar("C", bound=type)


@dataclass_transform(frozen_default=True, kw_only_default=True, field_specifiers=(field,))
def value_class(cls: C) -> C:
    """A class decorator for nouns: a frozen dataclass with slots, whose fields are given by name."""
    return dataclass(frozen=True, slots=True, kw_only=True)(cls)


@dataclass_transform(frozen_default=True, field_specifiers=(field,))
def stage(cls: C) -> C:
    """A callable part of a recipe: frozen, printable, hashable, overridable by dotted path."""
    return dataclass(frozen=True)(cls)


def need_at_least(part: object, **least: float) -> None:
    """Raises UserError where a field is a number below its least; what follows a schedule is not
    known yet.
    """
    for name, bound in least.items():
        given = getattr(part, name)
        if isinstance(given, int | float) and not given >= bound:
            raise UserError(
                f"{type(part).__name__}: {name} must be at least {bound:g}, not {given}"
            )


# metadata of a stage's field that changes how a number is computed, but not which
EXACT = {"exact": True}


Key: TypeAlias = tuple[int | str, ...]  # a path: (run, step, task, sample, attempt, seat, n, ...)


def seed_of(key: Key) -> int:
    """63 bits of a path. Equal paths give equal seeds on every machine; there is no global random
    state.
    """
    return int.from_bytes(hashlib.blake2b(repr(key).encode(), digest_size=8).digest(), "big") >> 1


def rng_of(key: Key) -> np.random.Generator:
    """The counter-based random stream that belongs to a path."""
    return np.random.Generator(np.random.Philox(seed_of(key)))


State: TypeAlias = dict[str, Any]  # plain data, groups and arrays: everything a checkpoint can hold
