"""What to try next, `draw(ctx, key, n, state) -> tasks, state`, and what to keep of it, at batch scope,
`pool(ctx, groups, state) -> ready | None, again, state`.

`ready` is trained on, None asks for another round; `again` holds unfinished groups that return to
`collect`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, ClassVar, Self

import numpy as np

from palaestra.abilities import split_size
from palaestra.credit.seats import split_by_seat
from palaestra.types import Group, Key, State, Task, need_at_least, rng_of, stage

if TYPE_CHECKING:
    from palaestra.context import Context, Situation


def order_seed(ctx: Situation) -> int:
    """What seeds the order of training tasks that come to an end: `--data-seed`, else the run's seed."""
    return ctx.seed if ctx.bench.data_seed is None else ctx.bench.data_seed


def draw_in_epochs(
    ctx: Situation, numbers: Sequence[int], n: int, state: State
) -> tuple[list[Task], State]:
    """The next `n` of the training tasks of some numbers, each once an epoch in a fresh order. The
    entry `cursor` of the state counts those that were drawn before.
    """
    at = state.get("cursor", 0)
    places = [divmod(at + i, len(numbers)) for i in range(n)]
    seed = order_seed(ctx)
    order = {e: rng_of((seed, "epoch", e)).permutation(len(numbers)) for e, _ in places}
    tasks = [ctx.bench.tasks.task("train", numbers[int(order[e][i])]) for e, i in places]
    return tasks, state | {"cursor": at + n}


@stage
class Shuffled:
    """Every training task once an epoch in a fresh order; an endless source is read in its own
    order, from where the bench says (`--data-seed`), whatever the run's seed is.
    """

    def __call__(self, ctx: Situation, key: Key, n: int, state: State) -> tuple[list[Task], State]:
        tasks, at = ctx.bench.tasks, state.get("cursor", 0)
        if tasks.size is None:
            first = ctx.bench.first_drawn + at
            drawn_tasks = [tasks.task("train", i) for i in range(first, first + n)]
            return drawn_tasks, state | {"cursor": at + n}
        return draw_in_epochs(ctx, range(tasks.size), n, state)


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


@stage
class Everything:
    """Trains on all that was collected."""

    async def __call__(
        self, ctx: Context, groups: list[Group], state: State
    ) -> tuple[list[Group] | None, list[Group], State]:
        return groups, [], state


def is_mixed(group: Group, trained: bool = False, solved: bool = False) -> bool:
    """Some episode did better than another for a seat that trains: the group has something to
    compare. With `trained`, muted episodes are not looked at; with `solved`, what is compared is
    whether answers are right, not their rewards.
    """
    parts, _ = split_by_seat([group], [])
    pays = [
        [
            float(e.solved) if solved else e.total
            for e in part.valid
            if e.reward is not None and not (trained and e.muted)
        ]
        for part in parts
    ]
    return any(len(p) > 1 and np.ptp(p) > 1e-9 for p in pays)


@stage
class Mixed:
    """Drops groups whose rewards are all equal and draws again until `size` are left (dynamic
    sampling, DAPO, arXiv:2503.14476); 0 = as many as a step draws.

    In self-play the pay of every seat that trains must be equal. Groups beyond `size` wait in the
    state and come first in the next batch, as far as the schedule's `max_age` allows: with 0 they
    are thrown away, with 1 they live for one step (recent sample recovery, arXiv:2506.18330,
    algorithm 1). A recipe whose credit learns from equal rewards refuses this gate.

    `trained` looks at the episodes that train alone: where second attempts took the place of the
    first, these being equal is enough to drop the group.

    `solved` looks at whether answers are right, as the reward says, in place of their rewards: a
    group of only wrong answers, or of only right ones, is dropped though its rewards differ, for
    instance by length.
    """

    drops_equal: ClassVar[bool] = True

    size: int = 16
    trained: bool = False
    solved: bool = False

    def fit_to_run(self, prompts: int, max_tokens: int) -> Self:
        """Without a size of its own it keeps as many groups as a step draws."""
        return self if self.size else replace(self, size=prompts)

    async def __call__(
        self, ctx: Context, groups: list[Group], state: State
    ) -> tuple[list[Group] | None, list[Group], State]:
        kept = [
            *state.get("waiting", []),
            *(g for g in groups if is_mixed(g, self.trained, self.solved)),
        ]
        size = self.size or max(len(kept), 1)
        if len(kept) < size:
            return None, [], {"waiting": kept}
        return kept[:size], [], {"waiting": kept[size:]}
