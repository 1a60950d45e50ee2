"""Which problems of a collection stay: none twice, none nearly so, and none that is held out.

A text is the set of its word n-grams, or of all its words where it has fewer. Two texts are nearly
one where the Jaccard similarity of these sets is `most` or more. The sets are compared as they are:
MinHash, which estimates the same number, pays beyond some 10,000 texts.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Hashable, Iterable, Sequence

from palaestra.schedule import check_bounds
from palaestra.services.index import words_of
from palaestra.types import Task, need_at_least, stage, value_class
from palaestra.verifiers.text.similarity import jaccard, ngrams


def prompt_text(task: Task) -> str:
    """What a task asks, as one text."""
    return "\n".join(m.content for m in task.prompt)


@value_class
class Deduplicated:
    """The tasks that stay, in their order, and how many went for which reason."""

    kept: tuple[Task, ...]
    duplicates: int = 0
    near: int = 0
    held_out: int = 0


@stage
class Deduplicate:
    """Drops what was there before, letter by letter but for the blanks, what is nearly the same as
    an earlier one, and what is nearly a held-out problem.

    Args:
        most: similarity from which two texts are one; 1 = only equal ones. Problems of one template
            share most of their words, so for these 1 is right.
        n: words of an n-gram.
    """

    most: float = 1.0
    n: int = 3

    def __post_init__(self) -> None:
        check_bounds("Deduplicate.most", self.most, above=0, most=1)
        need_at_least(self, n=1)

    def __call__(self, tasks: Iterable[Task], held_out: Sequence[Task] = ()) -> Deduplicated:
        exact, near, test = set[str](), Neighbours(self.most), Neighbours(self.most)
        tested = set[str]()
        for task in held_out:
            tested.add(key := " ".join(prompt_text(task).split()))
            test.add(self.shingles(key))
        kept: list[Task] = []
        dropped = {"duplicates": 0, "near": 0, "held_out": 0}
        for task in tasks:
            key = " ".join(prompt_text(task).split())
            shingles = self.shingles(key) if self.most < 1 else set[Hashable]()
            if key in tested or (shingles and test.has(shingles)):
                dropped["held_out"] += 1
            elif key in exact:
                dropped["duplicates"] += 1
            elif shingles and near.has(shingles):
                dropped["near"] += 1
            else:
                kept.append(task)
                exact.add(key)
                near.add(shingles)
        return Deduplicated(kept=tuple(kept), **dropped)

    def shingles(self, text: str) -> set[Hashable]:
        words = words_of(text)
        return ngrams(words, min(self.n, len(words))) if words else set()


class Neighbours:
    """Sets of which those that share an element with another one are found."""

    def __init__(self, most: float) -> None:
        self.most, self.sets = most, list[set[Hashable]]()
        self.places: defaultdict[Hashable, list[int]] = defaultdict(list)

    def add(self, signatures: set[Hashable]) -> None:
        for x in signatures:
            self.places[x].append(len(self.sets))
        self.sets.append(signatures)

    def has(self, signatures: set[Hashable]) -> bool:
        """Whether one of them is as similar as `most`."""
        near = {i for x in signatures for i in self.places.get(x, ())}
        return any(jaccard(signatures, self.sets[i]) >= self.most for i in near)
