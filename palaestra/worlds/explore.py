"""A bandit as a player sees it: in each turn the question of the bandit, and what was seen so far.

    5 buttons: B, K, Q, R, S.
    Turn 13 of 50.
    arm pulls mean
    B 3 0.67
    K 0 none
    ...                                                                      assistant: Q

A bandit is an environment of one seat that says which arms there are, by `Ask.choices` or a method
legal(state), and pays each turn. If it has a method expected(state), which returns the mean reward of
each arm by name, regret is known; if it has features(state), numbers of the present context, the
algorithms are the linear ones.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Literal, Protocol, runtime_checkable

import numpy as np

from palaestra.abilities import HoldsEpisodes
from palaestra.control.bandits import (
    ALPHA,
    BanditHistory,
    bandit_algorithm,
    guide_values,
    is_exploring,
)
from palaestra.declared import declare
from palaestra.errors import UserError
from palaestra.rollout.play import await_if_needed, frame_of
from palaestra.types import (
    Act,
    Ask,
    Frame,
    Key,
    Message,
    Task,
    World,
    need_at_least,
    rng_of,
    stage,
    value_class,
)
from palaestra.verifiers.answers.short import stated_answer
from palaestra.verifiers.base import strip_thinking
from palaestra.worlds.adapters.base import last_named
from palaestra.worlds.legal import legal_replies
from palaestra.worlds.user import UserWorld, instance_of

View = Literal["history", "summary", "guide"]
VIEWS: tuple[View, ...] = ("history", "summary", "guide")
GOAL = (
    "You choose one arm a turn and see its reward. The sum of all rewards is to be as large as possible: try arms "
    "of which little is known, and choose those that pay most."
)
GUIDE = "The sum of value and bonus is what an optimist expects of an arm."
ENDING = "Reply with the name of one arm."
EDGES = re.compile(r"^[\W_]+|[\W_]+$")


@runtime_checkable
class KnowsMeans(Protocol):
    """A bandit that knows its mean rewards. Without it, there is no regret."""

    def expected(self, state: Any) -> Mapping[str, float]:
        """The mean reward of each arm in a frame's state, by name."""
        ...


@runtime_checkable
class HasFeatures(Protocol):
    """A bandit whose turns have a context. Without it, every turn is alike."""

    def features(self, state: Any) -> Sequence[float]:
        """Numbers of the context in a frame's state, as many in each turn; () = none."""
        ...


@value_class
class ExploreState:
    """A turn of a bandit. `means` are those of the arms in it, () = nobody knows; regrets and
    `best` (whether a best arm was pulled) are by pull. The key makes what a teacher draws. `opening` is
    what the bandit said first.
    """

    inner: Any
    ask: Ask
    names: tuple[str, ...]
    seen: BanditHistory
    means: tuple[float, ...]
    key: Key
    opening: tuple[Message, ...]
    unread: int = 0
    regrets: tuple[float, ...] = ()
    best: tuple[bool, ...] = ()


@declare(
    facts=(
        ("arms", tuple, "numbers of the arms that were pulled, from 0"),
        ("rewards", tuple, "by pull, what it paid"),
        ("regrets", tuple, "by pull, the mean of the best arm less that of the arm pulled"),
        ("best_arms", tuple, "by pull, whether no arm had a higher mean"),
        ("arm_names", tuple, "the names of a bandit's arms"),
        ("unread_arms", int, "replies that name no arm, for which one was drawn"),
    )
)
@stage
class ExploreBandit:
    """A bandit of `horizon` turns, or as many as it has itself where that is less. A reply that names
    no arm pulls one at random, and is counted.

    Args:
        world: the bandit.
        horizon: turns; 0 = until the bandit ends.
        view: how the past is shown: each pull, number and mean by arm, or these with the bonus of
            UCB (of a context: value and bonus of LinUCB).
        alpha: of the bonus.
        told: the goal and the form of a reply stand behind the table.
        examples: decisions that are shown before the question, as (question, arm).
        common: the randomness follows from the task alone, so that all players meet the same.
    """

    world: World
    horizon: int = 50
    view: View = "summary"
    alpha: float = ALPHA
    told: bool = True
    examples: tuple[tuple[str, str], ...] = ()
    common: bool = False

    def __post_init__(self) -> None:
        need_at_least(self, horizon=0, alpha=0)
        if self.view not in VIEWS:
            raise UserError(f"a bandit's view is one of {', '.join(VIEWS)}, not {self.view!r}")

    @property
    def seats(self) -> tuple[str, ...]:
        return self.world.seats

    @property
    def most_turns(self) -> int:
        return self.horizon or 1000

    @property
    def shorter(self) -> str:
        """How to make prompts shorter."""
        return (
            "view=summary shows a line for each arm, whatever the number of turns"
            if self.view == "history"
            else "take fewer arms"
        )

    @property
    def own(self) -> Any:
        """The bandit itself, whose methods may say what a wrapper does not."""
        return instance_of(self.world.spec) if isinstance(self.world, UserWorld) else self.world

    async def reset(self, task: Task, key: Key) -> Frame:
        key = ("bandit", task.id) if self.common else key
        frame = await frame_of(self.world.reset(task, key))
        ask = self._ask_of(frame)
        names = tuple(dict.fromkeys(map(str.strip, legal_replies(self.world, frame.state, ask))))
        if len(names) < 2:
            raise UserError(
                f"{type(self.own).__name__} lists {len(names)} arms, and a bandit has two or more; give each "
                "Ask its choices, or the class a method legal(state) that returns the names"
            )
        state = ExploreState(
            inner=frame.state, ask=ask, names=names, seen=BanditHistory(n_arms=len(names)),
            means=(), key=key, opening=ask.say,
        )  # fmt: skip
        return self._show(self._enter(state, frame))

    async def step(self, state: ExploreState, acts: tuple[Act, ...], key: Key) -> Frame:
        t = len(state.seen.arms)
        name = read_arm(acts[0].text, state.names)
        drawn = int(rng_of((*state.key, "arm", t)).integers(len(state.names)))
        arm = drawn if name is None else state.names.index(name)
        act = replace(acts[0], ask=state.ask, text=state.names[arm], call=None, calls=())
        key = (*state.key, t) if self.common else key
        frame = await frame_of(self.world.step(state.inner, (act,), key))
        reward = float(sum(frame.pay.values()))
        seen = replace(
            state.seen,
            arms=(*state.seen.arms, arm),
            rewards=(*state.seen.rewards, reward),
            contexts=(*state.seen.contexts, state.seen.context),
        )
        regrets, best = state.regrets, state.best
        if state.means:
            top = max(state.means)
            regrets = (*regrets, top - state.means[arm])
            best = (*best, state.means[arm] == top)
        state = replace(
            state, seen=seen, regrets=regrets, best=best, unread=state.unread + (name is None)
        )
        facts = {
            "arms": seen.arms,
            "rewards": seen.rewards,
            "regrets": regrets,
            "best_arms": best,
            "arm_names": state.names,
            "unread_arms": state.unread,
        }
        pay = {(self.seats[0], ""): reward}
        if not frame.asks or len(seen.arms) == self.horizon:
            status = frame.status if not frame.asks else "finished"
            return Frame(
                state=replace(state, inner=frame.state), pay=pay, facts=facts, status=status
            )
        state = self._enter(replace(state, ask=self._ask_of(frame)), frame)
        return replace(self._show(state), pay=pay, facts=facts)

    async def leave(self, state: ExploreState) -> None:
        if isinstance(self.world, HoldsEpisodes):
            await await_if_needed(self.world.leave(state.inner))

    def legal(self, state: ExploreState) -> tuple[str, ...]:
        return state.names

    def advise(self, state: ExploreState, algorithm: str) -> tuple[str, bool]:
        """The arm that an algorithm pulls in a state, and whether it explores (`is_exploring`)."""
        rng = rng_of((*state.key, algorithm, len(state.seen.arms)))
        arm = bandit_algorithm(algorithm, self.alpha)(state.seen, rng)
        return state.names[arm], is_exploring(state.seen, arm)

    def _ask_of(self, frame: Frame) -> Ask:
        if len(frame.asks) != 1 or not frame.asks[0].say:
            raise UserError(
                f"{type(self.own).__name__} asks {len(frame.asks)} seats with a message; a bandit asks one in "
                "each turn"
            )
        return frame.asks[0]

    def _enter(self, state: ExploreState, frame: Frame) -> ExploreState:
        """The state with the means and the context of the present turn."""
        own, context, means = self.own, (), ()
        if isinstance(own, HasFeatures):
            context = tuple(map(float, own.features(frame.state)))
        if not np.isfinite(context).all():
            raise UserError(
                f"{type(own).__name__}.features returned {context}; return finite numbers"
            )
        if state.seen.arms and len(context) != len(state.seen.contexts[0]):
            raise UserError(
                f"{type(own).__name__}.features returned {len(context)} numbers, and before "
                f"{len(state.seen.contexts[0])}; return as many in each turn"
            )
        if isinstance(own, KnowsMeans):
            given = own.expected(frame.state)
            if missing := [n for n in state.names if n not in given]:
                raise UserError(
                    f"{type(own).__name__}.expected says nothing of the arm {missing[0]!r}; return "
                    "the mean reward of every arm by name"
                )
            means = tuple(float(given[n]) for n in state.names)
        return replace(
            state, inner=frame.state, seen=replace(state.seen, context=context), means=means
        )

    def _show(self, state: ExploreState) -> Frame:
        *before, last = state.ask.say if state.ask.new_row else state.opening
        later = state.seen.arms and not state.ask.new_row
        lines = [last.content, *([state.ask.say[-1].content] if later else []), self.table(state)]
        question = replace(last, content="\n".join(lines))
        examples = tuple(
            Message(role=role, content=text)
            for asked, arm in self.examples
            for role, text in (("user", asked), ("assistant", arm))
        )
        ask = replace(state.ask, say=(*before, *examples, question), new_row=True)
        return Frame(state=state, asks=(ask,))

    def table(self, state: ExploreState) -> str:
        """What was seen so far, for the player."""
        seen, t = state.seen, len(state.seen.arms)
        of = f" of {self.horizon}" if self.horizon else ""
        lines = [f"Turn {t + 1}{of}."]
        if self.view == "history":
            rows = zip(seen.arms, seen.rewards, seen.contexts, strict=True)
            lines += [f"{_context(x)}{state.names[k]} {number(r)}" for k, r, x in rows]
        else:
            lines += self._by_arm(state)
        if self.told:
            lines += [GOAL, *([GUIDE] if self.view == "guide" else []), ENDING]
        return "\n".join(lines)

    def _by_arm(self, state: ExploreState) -> list[str]:
        n_K, mean_K = state.seen.means()
        rows = [
            f"{name} {int(n)} {number(m) if n else 'none'}"
            for name, n, m in zip(state.names, n_K, mean_K, strict=True)
        ]
        if self.view == "summary":
            return ["arm pulls mean", *rows]
        value_K, bonus_K = guide_values(state.seen, self.alpha)
        linear = bool(state.seen.context)
        more = [
            f" {number(v)} {number(b)}" if linear else f" {number(b)}"
            for v, b in zip(value_K, bonus_K, strict=True)
        ]
        head = "arm pulls mean value bonus" if linear else "arm pulls value bonus"
        return [head, *(row + x for row, x in zip(rows, more, strict=True))]


def number(x: float) -> str:
    """Two digits behind the point, fewer where they are 0."""
    return f"{x:.2f}".rstrip("0").rstrip(".") if np.isfinite(x) else "inf"


def _context(x: tuple[float, ...]) -> str:
    return f"({', '.join(map(number, x))}) " if x else ""


def read_arm(text: str, names: Sequence[str]) -> str | None:
    """The arm that a reply names: what it states as its answer, else the whole reply, else its last
    line, else the name that stands last in it; None = it names none.

    >>> read_arm("**Q** looks best, but R is unknown.\\nAnswer: R", ("Q", "R"))
    'R'
    """
    reply = strip_thinking(text).strip()
    lines = reply.splitlines() or [""]
    for part in (stated_answer(text) or "", reply, lines[-1]):
        for clean in (part.strip(), EDGES.sub("", part)):
            same = [n for n in names if n == clean] or [
                n for n in names if n.casefold() == clean.casefold()
            ]
            if len(same) == 1:
                return same[0]
    return last_named(reply, names)
