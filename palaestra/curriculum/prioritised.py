"""Which problem next, by how often it was solved, and by how hard it is."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from palaestra.curriculum.arms import first_number
from palaestra.types import SOLVED_TOTAL, Example, Groups, Key, State, Task, rng_of, stage

if TYPE_CHECKING:
    from palaestra.context import Context


def prompt_length(task: Task) -> float:
    """Characters of the prompt, as its difficulty."""
    return float(sum(len(m.content) for m in task.prompt))


def weights(success_N: np.ndarray) -> np.ndarray:
    """Sampling probabilities ~ 1 - success rate; uniform where all is solved."""
    missing_N = 1 - success_N
    total = missing_N.sum()
    return missing_N / total if total > 0 else np.full(len(missing_N), 1 / len(missing_N))


@stage
class Prioritised:
    """Draws distinct problems with p ~ 1 - s, s the success rate so far (0 before the first try),
    arXiv:2501.12599, 2.3.4.

    The problems are the first `problems` of the training tasks. With `rise` > 0 only the easiest
    share is open, from `start` at the first draw to all of them after `rise` draws. Pair it with
    `observe=Successes()`, which keeps the rates.
    """

    problems: int = 256
    rise: int = 0  # draws until all problems are open; 0 = at once
    start: float = 0.25
    difficulty: Callable[[Task], float] = prompt_length

    def __call__(self, ctx: Context, key: Key, n: int, state: State) -> tuple[list[Task], State]:
        tasks, draws = ctx.bench.tasks, state.get("draws", 0)
        first, size = first_number(ctx), min(self.problems, tasks.size or self.problems)
        known = [tasks.task("train", first + i) for i in range(size)]
        if self.rise:
            share = min(1.0, self.start + (1 - self.start) * draws / self.rise)
            known = sorted(known, key=self.difficulty)[: max(n, round(share * len(known)))]
        p_N = weights(np.array([rate(state.get("tried", {}), t.id) for t in known]))
        rng, found = rng_of((*key, "prioritised")), list[Task]()
        while len(found) < n:  # more than there are: every problem once, then again
            some = min(n - len(found), int((p_N > 0).sum()))
            found += [known[i] for i in rng.choice(len(known), some, replace=False, p=p_N)]
        return found, state | {"draws": draws + 1}


def rate(tried: Mapping[str, Sequence[int]], name: str) -> float:
    right, total = tried.get(name, (0, 0))
    return right / total if total else 0.0


@stage
class Successes:
    """Counts solved and tried episodes of every problem in the state of the draw, as
    `tried[id] = (solved, tried)`.
    """

    def __call__(self, seen: Groups, examples: Mapping[str, list[Example]], state: State) -> State:
        tried: dict[str, Any] = dict(state.get("tried", {}))
        for group in seen:
            totals = [e.total for e in group.valid if e.reward is not None]
            right, total = tried.get(group.task.id, (0, 0))
            tried[group.task.id] = (
                right + sum(t >= SOLVED_TOTAL for t in totals),
                total + len(totals),
            )
        return state | {"tried": tried}
