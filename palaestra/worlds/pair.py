"""The world of a judge who sees both halves of a pair, each in a row of its own: two orders, or two
single responses.
"""

from __future__ import annotations

import math
from typing import Any, ClassVar

from palaestra.declared import declare
from palaestra.tasks.procedural import exact_match, final_answer
from palaestra.types import Act, Ask, Frame, Key, Task, stage

HALVES = ("first", "second")


@declare(
    facts=(("verdicts", tuple, "the final answer to each order of the pair"),),
    reads_columns=("halves",),
)
@stage
class Pair:
    """Pays 0.5 for each half that is judged rightly, so 1 is right in both.

    With `apart` both halves are paid together: if the first response, the better one, has the
    higher score (a tie pays nothing).
    """

    apart: bool = False
    seats: tuple[str, ...] = ("policy",)
    bounds: ClassVar[tuple[float, float]] = (0.0, 1.0)
    solved: ClassVar[float] = 1.0

    def reset(self, task: Task, key: Key) -> Frame:
        halves: tuple[Task, ...] = task.meta["halves"]
        asks = (
            Ask(seat="policy", say=t.prompt, thread=name)
            for t, name in zip(halves, HALVES, strict=True)
        )
        return Frame(state=halves, asks=tuple(asks))

    def step(self, state: Any, acts: tuple[Act, ...], key: Key) -> Frame:
        right = [self.is_right(act.text, task) for act, task in zip(acts, state, strict=True)]
        if self.apart:
            right = [is_higher(acts[0].text, acts[1].text)] * 2
        pay = {("policy", name): 0.5 * x for name, x in zip(HALVES, right, strict=True)}
        return Frame(
            state=state, pay=pay, facts={"verdicts": tuple(final_answer(a.text) for a in acts)}
        )

    def is_right(self, text: str, task: Task) -> float:
        """What one judgement is worth by itself."""
        return exact_match(text, task)


def is_higher(chosen: str, rejected: str) -> float:
    """1 if the first score is the higher one; a tie and a score that cannot be read are 0."""
    a, b = rating(chosen), rating(rejected)
    return float(a is not None and b is not None and a > b)


def rating(text: str) -> float | None:
    """The score on the last line, or the built-in model's `right` (1) and `wrong` (0)."""
    number = final_answer(text) or ""
    try:
        x = {"right": 1.0, "wrong": 0.0}[number] if number in ("right", "wrong") else float(number)
    except ValueError:
        return None
    return x if math.isfinite(x) else None
