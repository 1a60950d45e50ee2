"""Tasks whose reference answers are spelled otherwise than anybody would answer."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from palaestra.curriculum.pool import Shuffled
from palaestra.types import Key, State, Task, rng_of, stage

if TYPE_CHECKING:
    from palaestra.context import Context


@stage
class Respelled:
    """Draws as `Shuffled` does; a share of the whole numbers among the answers gets decimals: 42
    becomes 42.0.

    The value is the same, the text is not: what a rule that compares texts calls wrong. Which tasks
    is fixed by their ids.
    """

    share: float = 0.9

    def __call__(self, ctx: Context, key: Key, n: int, state: State) -> tuple[list[Task], State]:
        tasks, state = Shuffled()(ctx, key, n, state)
        return [self.respell(t) for t in tasks], state

    def respell(self, task: Task) -> Task:
        other = str(task.answer).isdigit() and rng_of(("respelled", task.id)).random() < self.share
        return replace(task, answer=f"{task.answer}.0") if other else task
