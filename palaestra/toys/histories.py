"""T-histories: what a user had, and candidates of which one is to the same taste.

user: 12 40 33      candidates: 71, 18, 90, 65, 52      18 is below fifty, as all that the user had

And a listwise reranker that knows tastes, and believes more in candidates that come late.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import field

import numpy as np

from palaestra.declared import declare
from palaestra.tasks.procedural import draw_task, question_task
from palaestra.types import ChatRequest, Task, rng_of, stage

MIDDLE = 50  # tastes are the numbers from 10 below it, and those from it to 89
SHOWN = re.compile(r"^\[\d+\] (\d+)$", re.MULTILINE)


@declare(reads_columns=("gold", "items"))
@stage
class HistoryTasks:
    """Next items of users who like numbers below 50, or from 50 on: `had` numbers that one had, and
    `candidates`, of which `liked`, drawn like those, are to the same taste. The next one is that of them
    whose number is nearest to the mean of what the user had; equals are nearest by the lower number. A
    task's meta: "gold", its text; "items", the texts of all, in an order drawn at random.
    """

    had: int = 3
    candidates: int = 6
    name: str = "histories"
    size: int | None = None
    liked: int = field(default=1, repr=False)

    def task(self, split: str, index: int) -> Task:
        return draw_task(self, split, index, self._draw)

    def _draw(self, rng: np.random.Generator) -> Task:
        sides = [rng.permutation(np.arange(10, MIDDLE)), rng.permutation(np.arange(MIDDLE, 90))]
        liked, others = sides if rng.random() < 0.5 else sides[::-1]
        history, right = liked[: self.had], liked[self.had : self.had + self.liked]
        items = rng.permutation([*right, *others[: self.candidates - self.liked]])
        gold = nearest(history.tolist(), right.tolist())
        meta = {"gold": (str(gold),), "items": tuple(map(str, items))}
        return question_task(self.name, " ".join(map(str, history)), None, meta)


def nearest(history: Sequence[int], numbers: Sequence[int]) -> int:
    """The number that is nearest to the mean of a history, the lowest of equals."""
    total, n = sum(history), len(history)
    return min(numbers, key=lambda x: (abs(n * x - total), x))


@stage
class TasteRanker:
    """Answers a listwise question about tastes with an order by

        score = quality + late * (place - 1),      place from 1

    where the quality is 1 for the candidate that is nearest to what the user had, and for another one a
    number from 0 to `luck`, drawn for the pair of both. With late = 0 the order in which candidates are
    shown changes nothing.

    Args:
        late: what a candidate gains by each place that it stands further back; below 0 it loses.
        luck: the highest quality of another candidate; above 1 the reranker errs.
    """

    late: float = 0.3
    luck: float = 1.2

    def __call__(self, request: ChatRequest) -> str:
        """The order as a message has it."""
        query, _, rest = request.messages[-1].content.partition("\n\n")
        items = list(map(int, SHOWN.findall(rest)))
        if not items:
            return "There are no candidates."
        right = nearest(list(map(int, query.split())), items)

        def score(place: int) -> float:
            luck = self.luck * float(rng_of(("luck", query, items[place])).random())
            return (1.0 if items[place] == right else luck) + self.late * place

        order = sorted(range(len(items)), key=score, reverse=True)
        return " > ".join(f"[{i + 1}]" for i in order)
