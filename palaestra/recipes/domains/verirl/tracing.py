"""Repairs of designs, and what they say of the designs that were repaired."""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from typing import Any, ClassVar

import numpy as np

import palaestra as pl

ASK = "Reason about the design first. Then write the module in one ```verilog block."
VERIFIER, MARK = "verilog(mutants=0)", "repair"
TRACED, RAISED = "traced", "raised"  # parts: the score by trace-back, and what that added
BEST, GAP, LEAST = 0.8, 0.4, 0.0  # of a pair: the better one's score, the difference, the other's


def trace_back(score_N: Sequence[float], parent_N: Sequence[int]) -> list[float]:
    """The score of each answer from those of its repairs, from the leaves up.

    Args:
        score_N: by simulation.
        parent_N: the place of the answer that each one repairs, before it; -1 = none.
    """
    traced, repairs = list(score_N), [list[float]() for _ in score_N]
    for i in reversed(range(len(traced))):
        if repairs[i]:
            traced[i] = float(np.mean(repairs[i]))
        if parent_N[i] >= 0:
            repairs[parent_N[i]].append(traced[i])
    return traced


def preferred_pairs(score_N: Sequence[float]) -> list[tuple[int, int]]:
    """(better, other) places whose scores make a pair."""
    return [
        (i, j)
        for a, b in combinations(range(len(score_N)), 2)
        for i, j in ((a, b), (b, a))
        if score_N[i] > score_N[j] + GAP + 1e-9 and score_N[i] > BEST and score_N[j] > LEAST
    ]


@dataclass(frozen=True)
class ShowFault:
    """The question, an attempt, and what was said of it."""

    attempt: str
    fault: str

    def __call__(self, ctx: pl.Context, group: pl.Group, rng: np.random.Generator) -> pl.Task:
        attempt = pl.Message(role="assistant", content=self.attempt, author="policy")
        message = pl.Message(role="user", content=self.fault)
        return replace(group.task, prompt=(*group.task.prompt, attempt, message))


def fault_of(attempt: str, task: pl.Task) -> str:
    """What is said of a design that scores low; of an answer to a built-in problem that it is wrong."""
    if not task.meta.get("testbench") and "module" not in str(task.answer):
        return "wrong, try again"
    verifier: Any = pl.verifiers.get_verifier(VERIFIER)
    fields = {k: task.meta[k] for k in ("stimuli", "clock", "testbench") if task.meta.get(k)}
    return f"{verifier.feedback(attempt, task.answer, **fields)}\n\nCorrect the design. {ASK}"


@pl.declare(facts=(("repair", float, "1 where the prompt showed an earlier design and its fault"),))
@pl.stage
class TraceBack:
    """Adds repairs of designs that score below `below`, and to each reward the part "traced", its score
    by trace-back, and "raised", what that is more than its own.

    The row of a repair hides the attempt that was shown, so a reward model reads specification and design.

    Args:
        children: repairs of one design.
        depth: levels of repairs; 0 = none.
    """

    reward: pl.RewardFn
    children: int = 2
    depth: int = 2
    below: float = 0.2
    temperature: float = 1.0

    async def __call__(self, ctx: pl.Context, key: pl.Key, group: pl.Group) -> pl.Group:
        episodes, parents = list(group.episodes), [-1] * len(group.episodes)
        level = list(range(len(episodes)))
        for depth in range(self.depth):
            at = [i for i in level if self.is_low(episodes[i])]
            made = await asyncio.gather(
                *(self.repairs(ctx, (*key, depth, i), group.task, episodes[i]) for i in at)
            )
            level = []
            for parent, repairs in zip(at, made, strict=True):
                for e in repairs:
                    level.append(len(episodes))
                    episodes.append(replace(e, origin=pl.Origin(parent=parent, turn=0)))
                    parents.append(parent)
        return replace(group, episodes=tuple(self.rescore(episodes, parents)))

    def is_low(self, e: pl.Episode) -> bool:
        """Whether it is repaired."""
        return e.ok and e.reward is not None and e.total < self.below and bool(e.text.strip())

    async def repairs(
        self, ctx: pl.Context, key: pl.Key, task: pl.Task, e: pl.Episode
    ) -> Sequence[pl.Episode]:
        fault = await asyncio.to_thread(fault_of, e.text, task)
        link = pl.links(
            pl.Under(
                ShowFault(e.text.strip(), fault),
                pl.Sample(n=self.children, temperature=self.temperature),
                MARK,
            ),
            pl.Hide(MARK),
            pl.Score(reward=self.reward),
        )
        made = await link(ctx, key, pl.Group(task=task))
        return [x for x in made.episodes if x.ok and x.reward is not None]

    def rescore(
        self, episodes: Sequence[pl.Episode], parents: Sequence[int]
    ) -> Sequence[pl.Episode]:
        traced = trace_back([e.total if e.ok else 0.0 for e in episodes], parents)
        return [
            e
            if e.reward is None
            else replace(
                e,
                reward=replace(e.reward, parts={**e.reward.parts, TRACED: s, RAISED: s - e.total}),
            )
            for e, s in zip(episodes, traced, strict=True)
        ]


@pl.stage
class TracedPairs:
    """Pairs of a specification's designs by `preferred_pairs` of their scores, at most `most`, drawn at
    random; two of the same text are none.
    """

    most: int = 32
    needs_several: ClassVar[bool] = True

    def __call__(
        self, groups: pl.Groups, signals: pl.Signals, state: pl.State
    ) -> tuple[list[pl.Example], pl.State]:
        pairs = list[pl.Group]()
        for group in groups:
            able = [e for e in group.episodes if e.ok and e.reward is not None and e.text.strip()]
            every = [
                (able[i], able[j])
                for i, j in preferred_pairs([e.total for e in able])
                if able[i].text.strip() != able[j].text.strip()
            ]
            rng = pl.rng_of(("traced pairs", *able[0].rows[0].key)) if every else None
            if rng is not None and len(every) > self.most:
                every = [every[i] for i in sorted(rng.permutation(len(every))[: self.most])]
            pairs += [replace(group, episodes=pair) for pair in every]
        return pl.Compare()(pairs, [], state)
