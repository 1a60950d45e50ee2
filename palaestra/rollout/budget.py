"""Where the attempts of a step go: more of them for some tasks, others in the place of those that
failed, few of many to train on.

What is not trained on is muted: it was sampled, so its tokens are in the budget, and it counts in
the statistics of its group.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from palaestra.context import Collect
from palaestra.declared import declare
from palaestra.errors import UserError
from palaestra.rollout.collect import Sample, rewards
from palaestra.types import SOLVED_TOTAL, Episode, Group, Key, need_at_least, stage

if TYPE_CHECKING:
    from palaestra.context import Context


@stage
class Extra:
    """As many more attempts as `count(rewards)` asks for; a `Score()` has to follow.

    Args:
        count: from the [G] rewards of the valid episodes so far.
        sample: how they are attempted; its own `n` is not read.
    """

    count: Callable[[np.ndarray], int]
    sample: Sample = Sample()

    async def __call__(self, ctx: Context, key: Key, group: Group) -> Group:
        n = self.count(rewards(group))
        return await replace(self.sample, n=n)(ctx, key, group) if n > 0 else group


@declare(facts=("stratum",))
@stage
class Instead:
    """What `link` makes of the task alone takes the place of the episodes so far, which stay muted.

    The two are strata of their own (the fact "stratum" is 0 and 1, then 2 and so on), so that
    `Center("stratum")` compares the second attempts with one another, and `Center("group")` with
    all. Where the link makes none, the group stays.
    """

    link: Collect

    async def __call__(self, ctx: Context, key: Key, group: Group) -> Group:
        fresh = await self.link(ctx, key, replace(group, episodes=()))
        if not fresh.episodes:
            return group
        level = 1 + max((e.facts.get("stratum", 0) for e in group.episodes), default=-1)
        muted = tuple(replace(_in_stratum(e, 0), muted=True) for e in group.episodes)
        moved = tuple(_after(e, len(muted)) for e in fresh.episodes)
        return replace(fresh, episodes=(*muted, *(_in_stratum(e, level) for e in moved)))


def _in_stratum(e: Episode, level: int) -> Episode:
    return e if "stratum" in e.facts else replace(e, facts={**e.facts, "stratum": level})


def _after(e: Episode, n: int) -> Episode:
    """The episode behind `n` others: who its parent is, is said by place."""
    return (
        e if e.origin is None else replace(e, origin=replace(e.origin, parent=e.origin.parent + n))
    )


@stage
class Pick:
    """Trains on the episodes whose places `choose(rewards)` gives, and mutes the others.

    Args:
        choose: from the [G] rewards of the valid, unmuted episodes, the places among these.
    """

    choose: Callable[[np.ndarray], Sequence[int]]

    async def __call__(self, ctx: Context, key: Key, group: Group) -> Group:
        return self.pick(group)

    def pick(self, group: Group) -> Group:
        """The group with the other episodes muted."""
        able = [i for i, e in enumerate(group.episodes) if e.ok and not e.muted]
        totals = np.array([group.episodes[i].total for i in able])
        kept = {able[i] for i in self.choose(totals)}
        return replace(
            group,
            episodes=tuple(
                replace(e, muted=e.muted or i not in kept) for i, e in enumerate(group.episodes)
            ),
        )


@declare(facts=("stratum",))
@stage
class Regroup:
    """Only the episodes whose places `choose(group)` gives are trained on and compared with one
    another. The others are muted and keep a stratum of their own, so `Center("stratum")` counts
    them in no mean, where `Pick` leaves them in the group's.

    Args:
        choose: from the group, places among its episodes; one that failed is never kept.
    """

    choose: Callable[[Group], Sequence[int]]

    async def __call__(self, ctx: Context, key: Key, group: Group) -> Group:
        kept = {i for i in self.choose(group) if group.episodes[i].ok}
        level = 1 + max((e.facts.get("stratum", 0) for e in group.episodes), default=0)
        return replace(
            group,
            episodes=tuple(
                replace(e, facts={**e.facts, "stratum": level})
                if i in kept
                else replace(_in_stratum(e, 0), muted=True)
                for i, e in enumerate(group.episodes)
            ),
        )


@stage
class Few:
    """Of many answers the first `n_right` right and the first `n_wrong` wrong ones; where one side is
    short the other fills up. For `Pick` (the balanced group of Reinforce-Ada, arXiv:2510.04996).
    """

    n_right: int = 2
    n_wrong: int = 2
    right: float | None = 0.7  # the reward from which on an answer is; None = 1

    def __post_init__(self) -> None:
        need_at_least(self, n_right=0, n_wrong=0)

    @property
    def reads_right(self) -> bool:
        return self.right is None

    def __call__(self, rewards_G: np.ndarray) -> list[int]:
        is_right = right_rewards(rewards_G, self.right)
        sides = np.flatnonzero(is_right), np.flatnonzero(~is_right)
        n = self.n_right + self.n_wrong
        right = max(self.n_right, n - len(sides[1]))
        wrong = max(self.n_wrong, n - len(sides[0]))
        return sorted([*sides[0][:right].tolist(), *sides[1][:wrong].tolist()])


@stage
class Enough:
    """Whether there are `n_right` right and `n_wrong` wrong answers: for `Until`."""

    n_right: int = 1
    n_wrong: int = 0
    right: float | None = 0.7

    @property
    def reads_right(self) -> bool:
        return self.right is None

    def __call__(self, rewards_G: np.ndarray) -> bool:
        right = int(right_rewards(rewards_G, self.right).sum())
        return right >= self.n_right and len(rewards_G) - right >= self.n_wrong


def right_rewards(rewards_G: np.ndarray, right: float | None) -> np.ndarray:
    return rewards_G >= (1.0 if right is None else right) - (1 - SOLVED_TOTAL)


@stage
class TopUp:
    """Attempts that bring the advantages of a task with the pass rate a to a wanted sum: for
    `Extra` (DARS, arXiv:2508.13755).

    Without a standard deviation the absolute advantages of N binary rewards sum to N S(a), S(a) =
    2 a (1 - a), at most N / 2. rule="equal" tops every task up to N / 2, rule="hard" to (1 - a) N:

        dN = (N / 2 - N S) / S,   dN = (N (1 - a) - N S) / S,   rounded up, for a < 1 / 2 alone

    `most` bounds N + dN. Where nothing was right a is taken to be 1 / (2 N).
    """

    rule: str = "equal"
    most: int = 32

    def __post_init__(self) -> None:
        if self.rule not in ("equal", "hard"):
            raise UserError(f"TopUp.rule is {self.rule!r}; it is 'equal' or 'hard'")

    def __call__(self, rewards_G: np.ndarray) -> int:
        n = len(rewards_G)
        if not n or rewards_G.mean() >= 0.5:
            return 0
        a = max(float(rewards_G.mean()), 0.5 / n)
        share = 2 * a * (1 - a)
        wanted = 0.5 * n if self.rule == "equal" else n * (1 - a)
        # a quotient that is whole may come out a rounding error above
        return max(0, min(int(np.ceil((wanted - n * share) / share - 1e-9)), self.most - n))
