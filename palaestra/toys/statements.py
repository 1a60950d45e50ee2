"""T-statements: what is true, false, and neither, of made-up cities.

user: bako is in tiru.          assistant: true
user: zulo is in tiru.          assistant: neither        (there is no such city)
"""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache

import numpy as np

from palaestra.abilities import Habit
from palaestra.declared import declare
from palaestra.errors import UserError
from palaestra.tasks.procedural import question_task
from palaestra.toys.wiki import SYLLABLES
from palaestra.types import Task, need_at_least, rng_of, stage

VERDICTS = ("true", "false", "neither")
NAMES = len(SYLLABLES) ** 2


@declare(columns=("entity",))
@stage
class Statements:
    """`bako is in tiru.` of a made-up map, on which each of so many `cities` lies in one of `countries`.

    A third of the statements each is true, false and neither: about a city that is on no map. Names of
    the three kinds are drawn alike, so that only who knows the map can tell them apart. Facts are those
    of the map in both splits. Half of the names on no map occur in the split "train"; of the others as
    many as there are cities occur in "test".

    Args:
        cities: with a place on the map, at most half of all names.
        countries: at least 2.
        seed: of the map.
    """

    cities: int = 64
    countries: int = 4
    seed: int = 0
    name: str = "statements"
    size: int | None = None
    max_tokens: int = 8

    def __post_init__(self) -> None:
        need_at_least(self, cities=2, countries=2)
        if self.cities > (most := NAMES // 2):
            raise UserError(f"Statements: there are names for {most} cities, not for {self.cities}")

    def task(self, split: str, index: int) -> Task:
        rng = rng_of((self.name, self.seed, split, index))
        cities, countries, unknown = drawn_map(self.cities, self.countries, self.seed)
        verdict = VERDICTS[int(rng.integers(3))]
        if verdict == "neither":
            names = unknown[1::2][: self.cities] if split == "test" else unknown[::2]
            city = names[int(rng.integers(len(names)))]
            place = int(rng.integers(len(countries)))
        else:
            number = int(rng.integers(len(cities)))
            city, own = cities[number], number % len(countries)
            other = (own + int(rng.integers(1, len(countries)))) % len(countries)
            place = own if verdict == "true" else other
        country = countries[place]
        task = question_task(self.name, f"{city} is in {country}.", verdict, {"entity": city})
        return replace(task, id=f"{self.name}/{split}/{index}")

    def check(self, text: str, task: Task) -> float:
        """1 for the right word, else 0."""
        return float(text.strip().casefold() == task.answer)

    def demonstration(self, task: Task, rng: np.random.Generator, habit: Habit) -> str:
        """The word."""
        return str(task.answer)


@lru_cache(maxsize=8)
def drawn_map(n: int, countries: int, seed: int) -> tuple[list[str], list[str], list[str]]:
    """Cities, of which number i lies in country i modulo the number of countries; countries; and names
    that are on no map.
    """
    order = rng_of(("map", seed)).permutation(NAMES).tolist()
    names = [SYLLABLES[i // len(SYLLABLES)] + SYLLABLES[i % len(SYLLABLES)] for i in order]
    return names[countries : countries + n], names[:countries], names[countries + n :]
