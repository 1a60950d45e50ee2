"""The strategy space of a small real-time strategy game, as numbers and as words.

A vector has 12 numbers: one or two harvesters (2), barracks built, and the resources they wait for as
(min(N, 10) - 5) / 5 (2), workers, heavy, light and ranged units trained (4), aggressive (1), attacks
buildings or units (2, zero if defensive), and the distance d of the defence as d / 8, the width of the map
(zero if aggressive). Who trains workers alone builds no barracks, so the space has 4 + 336 + 8 + 672 = 1,020.
"""

import json
import re
from collections.abc import Mapping
from functools import lru_cache
from itertools import product
from typing import Any

import palaestra as pl

UNITS = ("worker", "heavy", "light", "ranged")
TARGETS = ("building", "unit")
TRIGGERS = (5, 6, 7, 8, 9, 10)
DISTANCES = (1, 2, 3, 4)
WIDTH = 8
FORM = (
    '{"harvesters": 1 or 2, "barracks": 0 or resources of 5 to 10, "units": some of "worker", "heavy", '
    '"light", "ranged", "aggressive": true or false, "target": "building" or "unit" if aggressive, '
    '"distance": 1 to 4 if not}'
)


@pl.value_class
class PlannedStrategy:
    """A strategy of any game: its name, the words that a player is given, and its vector."""

    name: str
    text: str
    vector: tuple[float, ...]


@pl.value_class
class RtsStrategy:
    """A strategy of the small game by its fields. `barracks` are the resources that they wait for, 0 = none."""

    harvesters: int
    barracks: int
    units: tuple[str, ...]
    aggressive: bool
    target: str = ""
    distance: int = 0

    def vector(self) -> tuple[float, ...]:
        built = (1.0, (min(self.barracks, 10) - 5) / 5) if self.barracks else (0.0, 0.0)
        return (
            *(float(self.harvesters == n) for n in (1, 2)),
            *built,
            *(float(u in self.units) for u in UNITS),
            float(self.aggressive),
            *(float(self.target == t) for t in TARGETS),
            self.distance / WIDTH,
        )

    def text(self) -> str:
        barracks = (
            f"builds barracks at {self.barracks} resources" if self.barracks else "no barracks"
        )
        plan = (
            f"attacks {self.target}s first"
            if self.aggressive
            else f"defends at distance {self.distance}"
        )
        return (
            f"{self.harvesters} harvesters, {barracks}, trains {' and '.join(self.units)}, {plan}"
        )

    def planned(self) -> PlannedStrategy:
        return PlannedStrategy(name=self.text(), text=self.text(), vector=self.vector())


@lru_cache(maxsize=1)
def rts_space() -> tuple[RtsStrategy, ...]:
    """All strategies, in order."""
    mixes = [
        tuple(u for u, on in zip(UNITS, bits, strict=True) if on)
        for bits in product((0, 1), repeat=4)
    ]
    bases: list[tuple[int, tuple[str, ...]]] = [(0, ("worker",))]
    bases += [(n, m) for n in TRIGGERS for m in mixes if m and m != ("worker",)]
    plans = [(True, t, 0) for t in TARGETS] + [(False, "", d) for d in DISTANCES]
    made = [
        RtsStrategy(
            harvesters=n,
            barracks=barracks,
            units=units,
            aggressive=aggressive,
            target=target,
            distance=distance,
        )
        for n, (barracks, units), (aggressive, target, distance) in product((1, 2), bases, plans)
    ]
    return tuple(made)


def read_strategy(text: str) -> RtsStrategy | None:
    """The strategy of the last JSON object in a reply; None = there is none that the space has."""
    for body in reversed(re.findall(r"\{[^{}]*\}", pl.verifiers.strip_thinking(text))):
        try:
            fields: Any = json.loads(body)
            made = strategy_of(fields)
        except (ValueError, TypeError, KeyError):
            continue
        if made in rts_space():
            return made
    return None


def strategy_of(fields: Mapping[str, Any]) -> RtsStrategy:
    """A strategy by its fields, of which those are left out that its plan does not use."""
    aggressive = fields["aggressive"]
    return RtsStrategy(
        harvesters=int(fields["harvesters"]),
        barracks=int(fields["barracks"]),
        units=tuple(u for u in UNITS if u in fields["units"]),
        aggressive=bool(aggressive),
        target=str(fields["target"]) if aggressive else "",
        distance=0 if aggressive else int(fields["distance"]),
    )
