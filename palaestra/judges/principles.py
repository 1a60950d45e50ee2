"""Principles: what one person asks of a response, as a question that is answered with yes or no
(RLBFF, arXiv:2509.21319).

    links(Sample(n=8), Principled(PRINCIPLE_QUESTIONS), Score(reward=judge))

And what makes them from written feedback: a quote that is really there, and other annotators who
say the same.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from palaestra.declared import declare
from palaestra.errors import Fault
from palaestra.judges.pointwise import Judge
from palaestra.types import Episode, Group, Key, Reward, Task, rng_of, stage
from palaestra.verifiers.text.similarity import common_length

if TYPE_CHECKING:
    from palaestra.context import Context

PrincipleQuestion = tuple[str, str]  # the label that answers it, and the words
PRINCIPLE_QUESTIONS: tuple[PrincipleQuestion, ...] = (
    ("right", "right?"),
    ("worked", "steps shown?"),
    ("brief", "short?"),
    ("tidy", "in form?"),
)
# a quote below, a principle without a neighbour above is dropped: their best of .7, .8, .9
QUOTE, AGREE = 60.0, 0.8


@stage
class Principled:
    """Gives the group's task one of the principles, by its key: the columns `asked` (the label) and
    `principle` (the words).
    """

    questions: tuple[PrincipleQuestion, ...] = PRINCIPLE_QUESTIONS

    async def __call__(self, ctx: Context, key: Key, group: Group) -> Group:
        name, words = self.questions[
            int(rng_of((*key, group.task.id)).integers(len(self.questions)))
        ]
        return replace(group, task=ask_principle(group.task, name, words))


@declare(columns=("asked", ("principle", str, "the principle, in words")))
def ask_principle(task: Task, name: str, words: str) -> Task:
    return replace(task, meta={**task.meta, "asked": name, "principle": words})


def label_verdict(task: Task, episode: Episode) -> str:
    """The true verdict: whether the label that the principle asks about, NAME or label/NAME, is
    above a half.
    """
    parts, name = episode.reward.parts if episode.reward else {}, task.meta["asked"]
    label = parts.get(f"label/{name}", parts.get(name))
    if label is None:
        raise Fault("unlabelled", f"no label {name!r} of an episode of task {task.id!r}")
    return "Yes" if label > 0.5 else "No"


@stage
class Entailed:
    """The mean over several principles of what `judge` says of each; every one is a part. One
    response, one call each.

    A principle on which the judge fails leaves the episode without a reward.
    """

    judge: Judge
    questions: tuple[PrincipleQuestion, ...] = PRINCIPLE_QUESTIONS

    async def __call__(self, ctx: Context, group: Group) -> list[Reward | Fault]:
        columns = [
            await self.judge(ctx, replace(group, task=ask_principle(group.task, name, words)))
            for name, words in self.questions
        ]
        return [self._mean(row) for row in zip(*columns, strict=True)]

    def _mean(self, rewards: Sequence[Reward | Fault]) -> Reward | Fault:
        fault = next((x for x in rewards if isinstance(x, Fault)), None)
        if fault is not None:
            return fault
        parts = {
            name: x.total
            for (name, _), x in zip(self.questions, rewards, strict=True)
            if isinstance(x, Reward)
        }
        return Reward(total=sum(parts.values()) / len(parts), parts=parts)


# ---- from feedback to principles


def partial_ratio(quote: str, text: str) -> float:
    """100 * the best 2 * LCS / (n + m) of the shorter (n characters) and a window of the longer (m
    <= n), as rapidfuzz has it.

    Of two that are equally long either may have the window.
    """
    short, long = sorted((quote, text), key=len)
    n = len(short)
    if not n:
        return 100.0 * (not long)
    pairs = [(short, long), (long, short)] if len(long) == n else [(short, long)]
    windows = (
        (whole, other[max(0, at) : at + n])
        for whole, other in pairs
        for at in range(1 - n, len(other))
    )
    return max(200.0 * common_length(whole, w) / (n + len(w)) for whole, w in windows)


def has_quote(score: float, least: float = QUOTE) -> bool:
    """Whether a principle's quote stands in the feedback: a score above 60."""
    return score > least


def has_agreement(best: Sequence[float], least: float = AGREE) -> bool:
    """Whether every other annotator has a principle as close as this: each best cosine above 0.8.
    Nobody else = not agreed.
    """
    return bool(best) and all(s > least for s in best)


def annotator_consensus(
    ratings: Sequence[Sequence[tuple[np.ndarray, bool]]], least: float = AGREE
) -> list[list[bool]]:
    """For the principles (embedding, verdict) of each annotator of a response, whether all others
    agree with each.

    A neighbour counts if it has the same verdict.
    """

    def closest(x: np.ndarray, verdict: bool, other: Sequence[tuple[np.ndarray, bool]]) -> float:
        near = [
            float(x @ y / (np.linalg.norm(x) * np.linalg.norm(y)))
            for y, same in other
            if same == verdict
        ]
        return max(near, default=-1.0)

    return [
        [
            has_agreement(
                [closest(x, v, other) for b, other in enumerate(ratings) if b != a], least
            )
            for x, v in mine
        ]
        for a, mine in enumerate(ratings)
    ]
