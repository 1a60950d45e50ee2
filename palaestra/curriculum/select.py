"""Which of many drawn tasks are attempted, by what a model says of them before it samples."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import numpy as np

from palaestra.context import Draw
from palaestra.models.score import score_texts
from palaestra.types import Key, Metrics, State, Task, need_at_least, rng_of, stage

if TYPE_CHECKING:
    from palaestra.context import Context, Models


@stage
class Select:
    """Draws `factor` times as many tasks and keeps those with the highest score, in the order in
    which they were drawn; the others are not attempted. Ties are broken by chance. The state's
    `score_gain` is the mean score of what is kept less that of all candidates.

    Args:
        score: [N] numbers of N tasks, without a look at their answers.
        draw: where the candidates come from.
        share: of a batch that is taken from the candidates without a look at the score, so that
            what is scored low is seen now and then.
    """

    score: Callable[[Context, Sequence[Task]], np.ndarray]
    draw: Draw
    factor: int = 4
    share: float = 0.0

    def __post_init__(self) -> None:
        need_at_least(self, factor=1, share=0)

    def __call__(self, ctx: Context, key: Key, n: int, state: State) -> tuple[list[Task], State]:
        tasks, state = self.draw(ctx, key, n * self.factor, state)
        order = rng_of((*key, "select")).permutation(len(tasks))
        free, score_N = round(self.share * n), self.score(ctx, tasks)
        ranked = sorted(order[free:].tolist(), key=lambda i: -score_N[i])
        kept = sorted([*order[:free].tolist(), *ranked[: n - free]])
        gain = float(score_N[kept].mean() - score_N.mean()) if kept else 0.0
        return [tasks[i] for i in kept], {**state, "score_gain": gain}

    def draw_numbers(self, state: State) -> Metrics:
        """By how much the score of the tasks that are attempted is above that of the candidates."""
        return {"score_gain": state.get("score_gain", 0.0)}


@stage
class NearValue:
    """-|V(q) - target|, V the sigmoid of a head at the end of the prompt: prompts that are expected
    to be solved about half of the time (PCL, arXiv:2510.01135). For `Select`.
    """

    model: str = "value"
    head: str = "value"
    target: float = 0.5

    def __call__(self, ctx: Context, tasks: Sequence[Task]) -> np.ndarray:
        return -np.abs(self.values(ctx, tasks) - self.target)

    def values(self, ctx: Models, tasks: Sequence[Task]) -> np.ndarray:
        """[N] the expected reward of each prompt."""
        dialect = ctx.engine().dialect
        heard = [dialect.extend(t.prompt, first=True, closed=False) for t in tasks]
        texts = [[i for p in pieces if not p.hidden for i in p.ids] for pieces in heard]
        with ctx.phase("forward"):
            said_N1 = score_texts(ctx.model(self.model), texts, (self.head,))
        return 1 / (1 + np.exp(-said_N1[:, 0]))
