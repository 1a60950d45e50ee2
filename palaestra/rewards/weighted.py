"""Several rewards as one: a judge beside a verifier, a format beside a reward model or an
accuracy.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from palaestra.abilities import ChecksGold, bounds_of
from palaestra.context import RewardFn
from palaestra.errors import Fault, NotApplicable, UserError
from palaestra.rewards.intrinsic import read_answer
from palaestra.rewards.verify import response_text
from palaestra.rollout.collect import judge_group
from palaestra.types import Group, Reward, Task, stage

if TYPE_CHECKING:
    from palaestra.context import Context


@stage
class AccuracyAndFormat:
    """`accuracy` times what the bench pays, and `weight` for an answer in its place, right or not.
    What is right stays what the bench calls so. Where a world pays, its pay stands, and an episode
    that was cut before any has 0.
    """

    weight: float = 0.5
    accuracy: float = 1.0

    async def __call__(self, ctx: Context, group: Group) -> Sequence[Reward | Fault]:
        if ctx.bench.reward is None:
            return [Reward(total=0.0)] * len(group.episodes)
        rewards = await judge_group(ctx, ctx.bench.reward, group)
        pairs = zip(rewards, group.episodes, strict=True)
        return [r if isinstance(r, Fault) else self.add(r, response_text(e)) for r, e in pairs]

    def add(self, accuracy: Reward, text: str) -> Reward:
        has_answer = read_answer(text) is not None
        parts = {**accuracy.parts, "accuracy": accuracy.total, "format": float(has_answer)}
        total = self.accuracy * accuracy.total + self.weight * has_answer
        return replace(accuracy, total=total, parts=parts)


@stage
class Weighted:
    """sum_k weight_k * reward_k of the parts (name, reward, weight), asked side by side; weights
    may be negative.

    An answer is right where all parts that know it say so. The parts of the reward are NAME, each
    part's own total, and what it says beside: its part of the same name left out, others as
    NAME/PART, or as they are where they begin with NAME/. A part that does not apply to an answer is
    left out of its sum and named as silent, and the first other fault of a part is that of the episode.
    """

    parts: tuple[tuple[str, RewardFn, float], ...]

    def __post_init__(self) -> None:
        names = [name for name, _, _ in self.parts]
        if not names or len(set(names)) != len(names):
            raise UserError(
                f"Weighted: the parts are named {names}; give one or more, each a name of its own"
            )

    @property
    def bounds(self) -> tuple[float, float] | None:
        """Of the sum, where those of all parts are known. A part that is left out adds 0."""
        low = high = 0.0
        for _, reward, weight in self.parts:
            if (bounds := bounds_of(reward)) is None:
                return None
            ends = [weight * x for x in bounds]
            low, high = low + min(0.0, *ends), high + max(0.0, *ends)
        return low, high

    def check_gold(self, task: Task) -> None:
        """Raises UserError where a part cannot read the task's answer."""
        for _, reward, _ in self.parts:
            if isinstance(reward, ChecksGold):
                reward.check_gold(task)

    async def __call__(self, ctx: Context, group: Group) -> list[Reward | Fault]:
        rewards = await asyncio.gather(
            *(judge_group(ctx, reward, group) for _, reward, _ in self.parts)
        )
        return [self._sum(each) for each in zip(*rewards, strict=True)]

    def _sum(self, rewards: tuple[Reward | Fault, ...]) -> Reward | Fault:
        total, parts, solved, silent = 0.0, dict[str, float](), list[bool](), list[str]()
        labels = dict[str, str]()
        verdicts = tuple(v for r in rewards if isinstance(r, Reward) for v in r.verdicts)
        for (name, _, weight), each in zip(self.parts, rewards, strict=True):
            if isinstance(each, NotApplicable):
                silent.append(name)
                continue
            if isinstance(each, Fault):
                return each
            total += weight * each.total
            solved += [] if each.solved is None else [each.solved]
            beside = {
                k if k.startswith(f"{name}/") else f"{name}/{k}": v
                for k, v in each.parts.items()
                if k != name
            }
            parts |= {name: each.total, **beside}
            labels |= {f"{name}/{k}": text for k, text in each.labels.items()}
            silent += [f"{name}/{k}" for k in each.silent]
        if not parts:
            return NotApplicable(
                f"none of {', '.join(name for name, _, _ in self.parts)} says anything"
            )
        right = all(solved) if solved else None
        return Reward(
            total=total,
            parts=parts,
            solved=right,
            silent=tuple(silent),
            verdicts=verdicts,
            labels=labels,
        )
