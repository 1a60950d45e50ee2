"""What to try next: `draw(ctx, key, n, state) -> tasks, state`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from palaestra.abilities import split_size
from palaestra.types import Key, State, Task, need_at_least, rng_of, stage

if TYPE_CHECKING:
    from palaestra.context import Situation


@stage
class Shuffled:
    """Every training task once an epoch in a fresh order; an endless source is read in its own
    order, from where the bench says.
    """

    def __call__(self, ctx: Situation, key: Key, n: int, state: State) -> tuple[list[Task], State]:
        tasks, at = ctx.bench.tasks, state.get("cursor", 0)
        if tasks.size is None:
            first = ctx.bench.first_drawn + at
            drawn_tasks = [tasks.task("train", i) for i in range(first, first + n)]
            return drawn_tasks, state | {"cursor": at + n}
        chosen = [(at + i) // tasks.size for i in range(n)]
        order = {e: rng_of((ctx.seed, "epoch", e)).permutation(tasks.size) for e in set(chosen)}
        drawn_tasks = [
            tasks.task("train", int(order[e][(at + i) % tasks.size])) for i, e in enumerate(chosen)
        ]
        return drawn_tasks, state | {"cursor": at + n}


@stage
class Series:
    """Series of `length` tasks that follow one another in the source, one task of each a draw, as
    many series as tasks are drawn: number s has the tasks s * length to (s + 1) * length - 1.

    Of an endless split "test" the first series is that of the bench's first held-out problem.

    Args:
        staggered: the first series begin at different places, so that a draw has early and late
            tasks; False = all are at the same place.
    """

    length: int = 10
    split: str = "train"
    staggered: bool = True

    def __post_init__(self) -> None:
        need_at_least(self, length=1)

    def __call__(self, ctx: Situation, key: Key, n: int, state: State) -> tuple[list[Task], State]:
        tasks, live = ctx.bench.tasks, [tuple(x) for x in state.get("series", ())]
        size = split_size(tasks, self.split)
        first = ctx.bench.first_held_out if self.split == "test" and size is None else 0
        begun, opening = state.get("begun", 0), "series" not in state
        while len(live) < n:
            later = begun * self.length // n if opening and self.staggered else 0
            live.append((begun, later))
            begun += 1
        numbers = [(first + series) * self.length + at for series, at in live[:n]]
        drawn_tasks = [tasks.task(self.split, i if size is None else i % size) for i in numbers]
        on = [(series, at + 1) for series, at in live[:n] if at + 1 < self.length]
        return drawn_tasks, {**state, "series": [*live[n:], *on], "begun": begun}
