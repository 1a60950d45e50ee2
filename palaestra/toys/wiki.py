"""T-wiki: questions over several pages of a made-up wiki (HopQA). No model knows anything of it, and
every page but the first is named by the one before.

user: host of boss of bako?        the pages      bako: boss of bako is tiru.
                                                  tiru: host of tiru is mema.        answer: mema
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np

from palaestra.declared import declare
from palaestra.errors import UserError
from palaestra.tasks.procedural import draw_task, question_task
from palaestra.types import Task, need_at_least, rng_of, stage

RELATIONS = ("boss", "heir", "host", "twin")
SYLLABLES = tuple(c + v for c in "bcdfghjklmnprstvz" for v in "aeiou")


@declare(
    columns=(
        "path",
        ("gold", tuple, "ids of the documents that hold the answer"),
        ("queries", tuple, "searches that find them"),
    )
)
@stage
class WikiTasks:
    """Questions of `hops` relations in a row, over a wiki of `pages`, one fact a page: who stands in
    one of four relations to whom. Of each relation everybody has one, and is one's.

    Questions of the splits are disjoint; the pages are the same. Nobody comes twice in the way to
    an answer. A task's meta: "gold", the ids of the pages on the way; "queries" that find them;
    "path", who stands on it.

    Args:
        hops: at least, at most.
        held_out: the same of the split "test"; None = as in training.
        pages: in fours, one for each relation of somebody; 8 to 28,900.
        seed: of the wiki.
    """

    hops: tuple[int, int] = (1, 3)
    held_out: tuple[int, int] | None = None
    pages: int = 2000
    seed: int = 0
    name: str = "wiki"
    size: int | None = None

    def __post_init__(self) -> None:
        longest = max(self.hops[1], (self.held_out or self.hops)[1])
        need_at_least(self, pages=len(RELATIONS) * (longest + 1))
        if self.pages > (most := len(RELATIONS) * len(SYLLABLES) ** 2):
            raise UserError(f"WikiTasks: there are names for {most} pages, not for {self.pages}")

    def documents(self) -> tuple[tuple[str, str], ...]:
        """The pages, (id, text)."""
        return tuple(
            (f"{who}/{relation}", f"{who}: {relation} of {who} is {whom}.")
            for who, facts in wiki(self.pages, self.seed).items()
            for relation, whom in facts.items()
        )

    def task(self, split: str, index: int) -> Task:
        asked = self.held_out if split == "test" and self.held_out else self.hops
        return draw_task(self, split, index, lambda rng: self._draw(rng, *asked))

    def _draw(self, rng: np.random.Generator, least: int, most: int) -> Task:
        facts = wiki(self.pages, self.seed)
        hops, people = int(rng.integers(least, most + 1)), list(facts)
        path, ways = list[str](), list[str]()
        while len(set(path)) <= hops:
            ways = [RELATIONS[i] for i in rng.integers(len(RELATIONS), size=hops)]
            path = [people[int(rng.integers(len(people)))]]
            for way in ways:
                path.append(facts[path[-1]][way])
        asked = "".join(f"{way} of " for way in reversed(ways))
        steps = list(zip(path, ways, strict=False))
        meta = {
            "path": tuple(path),
            "gold": tuple(f"{who}/{way}" for who, way in steps),
            "queries": tuple(f"{way} of {who}" for who, way in steps),
        }
        return question_task(self.name, f"{asked}{path[0]}?", path[-1], meta)


@lru_cache(8)
def wiki(pages: int, seed: int) -> dict[str, dict[str, str]]:
    """Who is whose, by person and relation: of each relation one circle through all."""
    rng, n = rng_of(("wiki", pages, seed)), pages // len(RELATIONS)
    numbers = rng.choice(len(SYLLABLES) ** 2, n, replace=False)
    names = [SYLLABLES[i // len(SYLLABLES)] + SYLLABLES[i % len(SYLLABLES)] for i in numbers]
    circles = [rng.permutation(n) for _ in RELATIONS]
    after = [dict(zip(c.tolist(), np.roll(c, -1).tolist(), strict=True)) for c in circles]
    return {
        name: {way: names[to[i]] for way, to in zip(RELATIONS, after, strict=True)}
        for i, name in enumerate(names)
    }
