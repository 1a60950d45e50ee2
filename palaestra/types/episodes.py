"""Tasks, attempts at them with their rewards, and groups of attempts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import field
from typing import (
    Any,
    TypeAlias,
)

from palaestra.errors import NOT_APPLICABLE
from palaestra.types.base import (
    value_class,
)
from palaestra.types.rows import Row
from palaestra.types.talk import (
    Message,
)


@value_class
class Task:
    """A problem. `prompt` is shown to the policy, `answer` and `meta` are what a verifier or world
    needs to check it.
    """

    id: str
    prompt: tuple[Message, ...] = ()
    answer: Any = None
    meta: Mapping[str, Any] = field(default_factory=dict)
    bundle: str = ""  # tasks that travel together, e.g. one pair judged in both orders
    domain: str = ""
    # the data wrote its prompt as messages; what is drawn is named by the rest
    conversational: bool = field(default=False, repr=False)
    instruction: str = field(default="", repr=False)  # which a recipe put behind the question


@value_class
class Event:
    """A reward at a token: `token` indexes the row's training view, -1 = the row's last trained
    token.
    """

    row: int
    token: int
    value: float
    part: str = ""


@value_class
class JudgeVote:
    """What one judge said of an episode, once. `score`: None = what it said could not be read."""

    judge: str
    score: float | None
    said: str = ""


# a total reward from here on counts as solved, where the reward does not say what does
SOLVED_TOTAL = 1 - 1e-9


@value_class
class Reward:
    """`total` is what advantages start from; `parts` are named shares or shadows of it; `events`
    place reward in time. `solved`: whether the answer is right, None where nobody said so. Not
    `judged`: the data only say what is to be imitated or preferred; the total measures nothing.

    What a seat was paid is the part `payment(seat)`, where several seats play. `silent` names parts
    that say nothing of this episode and so are left out of the total: they are unknown, while a
    part that is missing otherwise is 0.
    """

    total: float
    parts: Mapping[str, float] = field(default_factory=dict)
    events: tuple[Event, ...] = ()
    solved: bool | None = None
    silent: tuple[str, ...] = ()
    judged: bool = True
    verdicts: tuple[JudgeVote, ...] = ()  # of judges who were asked; nothing is computed from them
    labels: Mapping[str, str] = field(default_factory=dict)  # texts that a reward gave beside it

    @property
    def payees(self) -> tuple[str, ...]:
        """The seats that were paid, the first one first."""
        return tuple(p.removeprefix(PAY_PREFIX) for p in self.parts if p.startswith(PAY_PREFIX))


PAY_PREFIX = "seat:"


def payment(seat: str) -> str:
    """The part of a reward, and of its events, that a seat was paid."""
    return PAY_PREFIX + seat


@value_class
class Origin:
    """Where a forked episode comes from: the parent's index in its group and the turn
    it left at.
    """

    parent: int
    turn: int


@value_class
class Episode:
    """One attempt at a task. `facts` hold what the world knows and the transcript does not; never
    shown to a policy.

    status: "running" | "finished" | "truncated:WHY" | "error:CAUSE". A muted episode counts in
    statistics, not in the gradient.
    """

    rows: tuple[Row, ...] = ()
    reward: Reward | None = None
    status: str = "running"
    muted: bool = False
    facts: Mapping[str, Any] = field(default_factory=dict)
    origin: Origin | None = None
    # of the clock, from its beginning to its end, waiting for others included; None = not played.
    # Says nothing of what the episode is.
    seconds: float | None = field(default=None, compare=False, repr=False)
    # the prompt that was shown, where it was not that of the task; for those who read the run
    prompt: tuple[Message, ...] = field(default=(), compare=False, repr=False)

    @property
    def ok(self) -> bool:
        """In the statistics: neither an infrastructure error nor without a reward."""
        return not self.status.startswith("error:")

    @property
    def unjudged(self) -> bool:
        """No reward says anything of it, and no infrastructure failed."""
        return self.status == f"error:{NOT_APPLICABLE}"

    @property
    def total(self) -> float:
        if self.reward is None:
            raise ValueError(f"an episode with status {self.status!r} has not been scored")
        return self.reward.total

    @property
    def solved(self) -> bool:
        """Whether its answer is right; where the reward does not say so, whether it is 1 or more.

        Raises ValueError where it has not been scored.
        """
        return self.is_right()

    def is_right(self, right: float | None = None) -> bool:
        """Whether its answer is right: as `solved` says, or where its total reward is `right` or
        more. What tells right from wrong asks this, and takes an argument `right`.
        """
        known = None if self.reward is None else self.reward.solved
        if right is not None or known is None:
            return self.total >= (1.0 if right is None else right) - (1 - SOLVED_TOTAL)
        return known

    @property
    def text(self) -> str:
        """What was sampled, all turns joined."""
        return "".join(s.text for r in self.rows for s in r.segments if s.logp is not None)

    @property
    def n_sampled(self) -> int:
        return sum(r.n_sampled for r in self.rows)

    @property
    def recorded(self) -> bool:
        """Whether nothing of it was sampled and its trained tokens come from data."""
        segments = [s for r in self.rows for s in r.segments]
        return any(s.trained for s in segments) and all(s.logp is None for s in segments)

    def oldest(self) -> int | None:
        """The oldest policy version among its trained tokens; None = offline data only."""
        versions = [version for r in self.rows if (version := r.oldest()) is not None]
        return min(versions, default=None)


@value_class
class Group:
    """Episodes of one task that are compared with one another."""

    task: Task
    episodes: tuple[Episode, ...] = ()

    @property
    def valid(self) -> tuple[Episode, ...]:
        return tuple(e for e in self.episodes if e.ok)


Groups: TypeAlias = Sequence[Group]
