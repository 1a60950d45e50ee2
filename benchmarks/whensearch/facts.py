"""The questions of the study of searches: facts of a wiki, of which half are to be known by heart.

user: boss of bako?        the page      bako: boss of bako is tiru.        answer: tiru

A quarter of the pages is out of date: they name somebody else, so a search does not always pay.
"""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache
from typing import Any, Literal

import numpy as np

import palaestra as pl
from palaestra.declared import declare
from palaestra.services.index import BM25
from palaestra.tasks.procedural import question_task
from palaestra.toys.wiki import RELATIONS, wiki
from palaestra.types import Act, Frame, Key, Task, rng_of, stage
from palaestra.worlds.search import SearchState

PAGES, FACTS, HELD_OUT, STALE = 1024, 480, 160, 0.4  # pages; facts asked for, and held out of these
KINDS = ("unknown", "known")  # by `from_memory`
Form = Literal["plain", "draft"]
Index = Literal["intact", "shuffled", "broken"]


@lru_cache(1)
def facts() -> tuple[tuple[str, str, str], ...]:
    """Who stands in which relation to whom: the facts that are asked for, in the order of `split_facts`."""
    everything = [(who, way, whom) for who, all_ in wiki(PAGES, 0).items() for way, whom in all_.items()]
    order = rng_of(("whensearch", "facts")).permutation(len(everything))
    return tuple(everything[i] for i in order[:FACTS])


def facts_of(split: str, known: bool) -> tuple[tuple[str, str, str], ...]:
    """The facts of a kind in a split; every second fact is known, and a third is held out."""
    held = facts()[:HELD_OUT] if split == "test" else facts()[HELD_OUT:]
    return held[int(not known) :: 2]


def name_but(right: str, rng: np.random.Generator) -> str:
    """Anybody else."""
    names = [n for n in wiki(PAGES, 0) if n != right]
    return names[int(rng.integers(len(names)))]


@declare(
    columns=(
        ("from_memory", bool, "whether the start was taught it"),
        ("queries", tuple, "searches that find its page"),
        ("searches", bool, "whether its worked example searches"),
        ("draft", str, "what its worked example answers without a search"),
    )
)
@stage
class Facts:
    """Known and unknown facts in turn. Whether the worked example of a question searches is drawn anew each time,
    by the same coin for both kinds; without a search it gives the right answer to a known one, and any name to an
    unknown one.
    """

    name: str = "facts-by-kind"
    size: int | None = None

    def task(self, split: str, index: int) -> Task:
        rng, known = rng_of((self.name, split, index)), index % 2 == 0
        own = facts_of(split, known)
        # the exam asks each fact once
        who, way, whom = own[index // 2 % len(own) if split == "test" else int(rng.integers(len(own)))]
        meta = {
            "from_memory": known,
            "queries": (f"{way} of {who}",),
            "searches": bool(rng.random() < 0.5),
            "draft": whom if known else name_but(whom, rng),
        }
        made = question_task(KINDS[known], f"{way} of {who}?", whom, meta)
        return replace(made, id=f"{self.name}/{split}/{index}")


@stage
class Taught:
    """Worked examples of the facts of both splits, as the weights are to hold some of both.

    Args:
        by_heart: half of the examples answer known facts at once, an eighth guesses, and three eighths search; else
            the coin of a question says which.
    """

    by_heart: bool = False
    source: Facts = Facts()
    size: int | None = None

    @property
    def name(self) -> str:
        return "facts-by-heart" if self.by_heart else "facts-taught"

    def task(self, split: str, index: int) -> Task:
        rng = rng_of(("whensearch", self.name, index))
        place, known = int(rng.integers(8)), bool(rng.random() < 0.5)
        if self.by_heart and place < 5:
            known = place < 4
        part = "test" if rng.random() < HELD_OUT / FACTS else "train"
        made = self.source.task(part, 2 * int(rng.integers(2**31)) + int(not known))
        own = {"searches": place >= 5} if self.by_heart else {}
        return replace(made, id=f"{self.name}/{split}/{index}", meta={**made.meta, **own})


@lru_cache(1)
def pages() -> tuple[tuple[str, str], ...]:
    """The index: a quarter of the pages, of either kind alike, is out of date."""
    made = list[tuple[str, str]]()
    for who, ways in wiki(PAGES, 0).items():
        for way, whom in ways.items():
            rng = rng_of(("whensearch", "stale", who, way))
            says = name_but(whom, rng) if rng.random() < STALE else whom
            made.append((f"{who}/{way}", f"{who}: {way} of {who} is {says}."))
    return tuple(made)


class CoinOracle:
    """Shows what the coin of a task says: a search and what its page names, or an answer at once."""

    def oracle(self, state: Any) -> str:
        meta = state.task.meta
        if state.outcomes:
            _, page = state.passages[-1]
            return f"<answer>{page.split()[-1].rstrip('.')}</answer>"
        draft = f"<answer>{meta['draft']}</answer>"
        search = f"<search>{meta['queries'][0]}</search>"
        if isinstance(self, pl.worlds.DraftSearch):
            return draft + (search if meta["searches"] else "")
        return search if meta["searches"] else draft


@stage
class PlainRoom(CoinOracle, pl.worlds.Search):
    """A search or an answer."""


@stage
class DraftRoom(CoinOracle, pl.worlds.DraftSearch):
    """A draft, and a search behind it or not."""


@stage
class SearchedRoom(PlainRoom):
    """A search is demanded: an answer before the first one ends the episode unpaid."""

    async def step(self, state: SearchState, acts: tuple[Act, ...], key: Key) -> Frame:
        form, _ = self.read(acts[0].text)
        if form == "answer" and not state.calls:
            return self._missed(state, "malformed", "search first", "end")
        return await super().step(state, acts, key)


def room(kind: type[Any], index: Index = "intact") -> Any:
    """A world over the pages. "shuffled": each page stands in the place of another; "broken": no search gives anything."""
    found_by = BM25(pages(), 0 if index == "shuffled" else None)
    return kind(found_by, k=1, turns=3, fails=float(index == "broken"))

