"""Multiple choice whose right options can be told by their texts alone, without the question."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence

from palaestra.tasks.options import LETTERS

LEAST_OPTIONS = 3
LEAST_SHARE = 0.5  # of the questions in which a rule is right
MOST_TEXTS = 4096  # different texts of options that are counted
OFTEN = 20  # questions in which a text must stand to be told


class OptionBias:
    """Counts, over questions with three options or more, how often a rule that reads no question is
    right: the longest text, the shortest one, one text whenever it is there.
    """

    def __init__(self) -> None:
        self.chance, self.variance = 0.0, 0.0
        self.n, self.longest, self.shortest = 0, 0, 0
        self.texts: Counter[str] = Counter()
        self.right: Counter[str] = Counter()

    def look(self, options: Sequence[str], gold: str) -> None:
        """A question. One whose answer names none of its options is not counted."""
        at = place_of_answer(options, gold)
        if len(options) < LEAST_OPTIONS or at is None:
            return
        chance = 1 / len(options)
        self.n += 1
        self.chance += chance
        self.variance += chance * (1 - chance)
        sizes = [len(o) for o in options]
        self.longest += sizes[at] == max(sizes) and sizes.count(sizes[at]) == 1
        self.shortest += sizes[at] == min(sizes) and sizes.count(sizes[at]) == 1
        for i, text in enumerate(options):
            if text in self.texts or len(self.texts) < MOST_TEXTS:
                self.texts[text] += 1
                self.right[text] += i == at

    def finding(self) -> str:
        """The rule that is right most often: in half of the questions and more than three standard
        deviations above chance, or a text that is right in nine of ten questions that have it; "" =
        none is.
        """
        rules = ((self.longest, "the longest option"), (self.shortest, "the shortest option"))
        times, rule = max(rules)
        deviations = 3 * math.sqrt(self.variance) + 1
        if self.n and times >= max(LEAST_SHARE * self.n, self.chance + deviations):
            return f"{rule} is right in {times:,} of {self.n:,} questions, by chance in {self.chance:,.0f}"
        often = [t for t, n in self.texts.items() if n >= OFTEN and self.right[t] >= 0.9 * n]
        if not often:
            return ""
        text = max(often, key=lambda t: self.right[t])
        n = self.texts[text]
        return f"the option {text[:40]!r} is right in {self.right[text]:,} of {n:,} questions that have it"


def place_of_answer(options: Sequence[str], gold: str) -> int | None:
    """Which option an answer names, by its letter or its text; None = none, or several."""
    gold = gold.strip()
    if len(gold) == 1 and gold.upper() in LETTERS[: len(options)]:
        return LETTERS.index(gold.upper())
    places = [i for i, o in enumerate(options) if o.strip().casefold() == gold.casefold()]
    return places[0] if len(places) == 1 else None
