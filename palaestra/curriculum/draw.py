"""What to try next: `draw(ctx, key, n, state) -> tasks, state`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from palaestra.types import Key, State, Task, rng_of, stage

if TYPE_CHECKING:
    from palaestra.context import Context


@stage
class Shuffled:
    """Every training task once an epoch in a fresh order; an endless source is read in its own
    order.
    """

    def __call__(self, ctx: Context, key: Key, n: int, state: State) -> tuple[list[Task], State]:
        tasks, at = ctx.bench.tasks, state.get("cursor", 0)
        if tasks.size is None:
            return [tasks.task("train", i) for i in range(at, at + n)], state | {"cursor": at + n}
        chosen = [(at + i) // tasks.size for i in range(n)]
        order = {e: rng_of((ctx.seed, "epoch", e)).permutation(tasks.size) for e in set(chosen)}
        found = [
            tasks.task("train", int(order[e][(at + i) % tasks.size])) for i, e in enumerate(chosen)
        ]
        return found, state | {"cursor": at + n}
