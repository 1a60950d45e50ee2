"""Which problem next, by how often it was solved, and by how hard it is."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from palaestra.curriculum.arms import count_tasks, first_number
from palaestra.schedule import check_bounds
from palaestra.types import Example, Groups, Key, State, Task, need_at_least, rng_of, stage

if TYPE_CHECKING:
    from palaestra.context import Situation


def prompt_length(task: Task) -> float:
    """Characters of the prompt, as its difficulty."""
    return float(sum(len(m.content) for m in task.prompt))


def learnable(rate_N: np.ndarray) -> np.ndarray:
    """[N] p (1 - p): the variance of a binary reward, which is what a gradient is made of."""
    return rate_N * (1 - rate_N)


def probabilities(weight_N: np.ndarray) -> np.ndarray:
    """[N] ~ weights; uniform where all are 0."""
    total = weight_N.sum()
    return weight_N / total if total > 0 else np.full(len(weight_N), 1 / len(weight_N))


@stage
class Prioritised:
    """Draws distinct problems with p ~ 1 - s, s the success rate so far (0 before the first try),
    arXiv:2501.12599, 2.3.4. With `toward="middle"` p ~ s (1 - s), s = (solved + 1) / (tried + 2):
    what is solved now and then, and what was never tried, before what is always or never solved.

    The problems are the first `problems` of the training tasks, None = all (256 of a source without
    an end). With `rise` > 0 only the easiest
    share is open, from `start` at the first draw to all of them after `rise` draws. Pair it with
    `observe=Successes()`, which keeps the rates.
    """

    problems: int | None = 256
    rise: int = 0  # draws until all problems are open; 0 = at once
    start: float = 0.25
    difficulty: Callable[[Task], float] = prompt_length
    toward: Literal["unsolved", "middle"] = "unsolved"

    def __post_init__(self) -> None:
        need_at_least(self, rise=0)
        check_bounds("Prioritised.problems", self.problems, least=1)
        check_bounds("Prioritised.start", self.start, least=0, most=1)

    def __call__(self, ctx: Situation, key: Key, n: int, state: State) -> tuple[list[Task], State]:
        tasks, draws = ctx.bench.tasks, state.get("draws", 0)
        first, size = first_number(ctx), count_tasks(self.problems, tasks.size, 256)
        known = [tasks.task("train", first + i) for i in range(size)]
        if self.rise:
            share = min(1.0, self.start + (1 - self.start) * draws / self.rise)
            known = sorted(known, key=self.difficulty)[: max(n, round(share * len(known)))]
        tried = state.get("tried", {})
        p_N = probabilities(self.weights_of(np.array([tried.get(t.id, (0, 0)) for t in known])))
        rng, drawn_tasks = rng_of((*key, "prioritised")), list[Task]()
        while len(drawn_tasks) < n:  # more than there are: every problem once, then again
            some = min(n - len(drawn_tasks), int((p_N > 0).sum()))
            drawn_tasks += [known[i] for i in rng.choice(len(known), some, replace=False, p=p_N)]
        return drawn_tasks, state | {"draws": draws + 1}

    def weights_of(self, tried_N2: np.ndarray) -> np.ndarray:
        """[N] by how often each problem was solved and tried."""
        solved_N, tried_N = tried_N2.T
        if self.toward == "middle":
            return learnable((solved_N + 1) / (tried_N + 2))
        return 1 - solved_N / np.maximum(tried_N, 1)


@stage
class Successes:
    """Counts solved and tried episodes of every problem in the state of the draw, as
    `tried[id] = (solved, tried)`.
    """

    def __call__(self, seen: Groups, examples: Mapping[str, list[Example]], state: State) -> State:
        tried: dict[str, Any] = dict(state.get("tried", {}))
        for group in seen:
            solved = [e.solved for e in group.valid if e.reward is not None]
            right, total = tried.get(group.task.id, (0, 0))
            tried[group.task.id] = (right + sum(solved), total + len(solved))
        return state | {"tried": tried}
