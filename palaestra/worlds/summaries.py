"""Episodes that are longer than a context: before it is full the policy sums up, and goes on from
there.

Let c be the context of a seat before its next turn, with the messages that the world would say next,
and x what the world said first. Where |c| > limit tokens (SUPO, arXiv:2510.06727, algorithm 2):

    c, instruction     ->  a summary z, sampled from the same policy in the same row
    x, lead-in, z      ->  the next turn, at the beginning of a new row

What the world said last is left out of both, as in the paper; what was done has had its effect.
"""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from palaestra.abilities import HoldsEpisodes, KnowsSolved, bounds_of
from palaestra.declared import declare
from palaestra.errors import UserError
from palaestra.types import (
    Act,
    Ask,
    Frame,
    Key,
    Message,
    Player,
    Task,
    World,
    need_at_least,
    value_class,
)
from palaestra.verifiers.base import strip_thinking
from palaestra.worlds.again import behind_question

SUM_UP = (
    "The conversation is about to be cut: only the question and what you write here will be left of "
    "it. Sum up what you did, what you found out, and what is still to be done. Do not act in this "
    "message."
)
LEAD_IN = "You have worked on this before. Your summary of that:"
LAST = "What was said last:"
FULL = "truncated:summaries"  # no summary is left, and the context is full


@value_class
class SummaryState:
    """The state of the world inside; by seat and thread the messages that its context begins with,
    and its tokens so far; the seats that have not acted since; the ask that waits for a summary; the
    summaries; and how many messages did not fit behind a beginning and one action.
    """

    inside: Any
    begins: Mapping[tuple[str, str], tuple[Message, ...]] = field(default_factory=dict)
    used: Mapping[tuple[str, str], int] = field(default_factory=dict)
    waiting: Ask | None = None
    state_key: Any = None
    summaries: tuple[str, ...] = ()
    fresh: frozenset[tuple[str, str]] = frozenset()
    unread: int = 0


@declare(
    facts=(
        ("summaries", tuple, "the summaries that the episode went on from, in order"),
        ("unread", int, "results that no context had room for, although it had just begun"),
    )
)
@dataclass(frozen=True)
class WithSummaries:
    """The same world for contexts of about `limit` tokens. Seats whose player is not trained are left
    alone, and so are turns for which the world itself replaces the context.

    A call in a summary is not made, and thoughts in it are not shown. An episode that is too long
    once more after `most` summaries is cut: "truncated:summaries". The fact "summaries" has them,
    empty ones too; "unread" counts results that are left out although they followed the first action
    of their row, which no summary makes room for.

    Args:
        world: one seat at a time speaks in it.
        players: by seat; they know how many tokens a message takes.
        limit: tokens of a context before a turn, from which on it is summed up.
        most: summaries that an episode may have; 0 = it is cut at the limit.
        tokens: that a summary may have; 0 = as many as a turn.
        instruction: what asks for a summary.
        lead_in: what stands above it.
        carry: what the world said last is shown below the summary, not left out.

    Raises:
        UserError: several seats speak at once, or what the world says first is beyond the limit, or has no
            message of the user.
    """

    world: World
    players: Mapping[str, Player]
    limit: int
    most: int = 7
    tokens: int = 0
    instruction: str = SUM_UP
    lead_in: str = LEAD_IN
    carry: bool = False

    def __post_init__(self) -> None:
        need_at_least(self, limit=1, most=0, tokens=0)

    @property
    def seats(self) -> tuple[str, ...]:
        return self.world.seats

    @property
    def solved(self) -> float | None:
        return self.world.solved if isinstance(self.world, KnowsSolved) else None

    @property
    def bounds(self) -> tuple[float, float] | None:
        return bounds_of(self.world)

    async def reset(self, task: Task, key: Key) -> Frame:
        return self._seen(SummaryState(inside=None), await _frame(self.world.reset(task, key)))

    async def step(self, state: SummaryState, acts: tuple[Act, ...], key: Key) -> Frame:
        (act,) = acts
        if state.waiting is not None:
            return self._go_on(state, state.waiting, strip_thinking(act.text).strip())
        who = (act.ask.seat, act.ask.thread)
        state = replace(state, used={**state.used, who: act.n_context + act.n_tokens})
        return self._seen(state, await _frame(self.world.step(state.inside, acts, key)), act.finish)

    async def leave(self, state: SummaryState) -> None:
        if isinstance(self.world, HoldsEpisodes):
            left = self.world.leave(state.inside)
            await left if inspect.isawaitable(left) else None

    def _seen(self, state: SummaryState, frame: Frame, finish: str = "") -> Frame:
        """The world's frame, or in its place one that asks for a summary or ends the episode."""
        state = replace(state, inside=frame.state, state_key=frame.state_key)
        frame = replace(frame, facts={**frame.facts, **_facts(state)})
        if len(frame.asks) > 1:
            raise UserError(
                "several seats speak at once in this environment, and summaries are written in those "
                "where one does"
            )
        if not frame.asks or not self.players[frame.asks[0].seat].policy:
            return replace(frame, state=state)
        ask = frame.asks[0]
        who = (ask.seat, ask.thread)
        begins = ask.new_row or who not in state.begins
        prompt_tokens = self._tokens(ask, begins, closed=finish == "eos")
        if begins:
            return replace(frame, state=self._begun(state, ask, prompt_tokens))
        fresh, state = who in state.fresh, replace(state, fresh=state.fresh - {who})
        if state.used.get(who, 0) + prompt_tokens <= self.limit:
            return replace(frame, state=state)
        if fresh and not self.carry:
            state = replace(state, unread=state.unread + 1)
            frame = replace(frame, facts={**frame.facts, **_facts(state)})
        if len(state.summaries) >= self.most:
            return replace(frame, state=state, asks=(), status=FULL)
        say = (Message(role="user", content=self.instruction),)
        sum_up = Ask(
            seat=ask.seat,
            thread=ask.thread,
            say=say,
            tools=ask.tools,
            max_tokens=self.tokens or None,
        )
        state = replace(state, waiting=ask)
        return replace(frame, state=state, asks=(sum_up,), state_key=None)

    def _tokens(self, ask: Ask, begins: bool, closed: bool) -> int:
        """Those that the messages of an ask take in the context of its seat."""
        heard = self.players[ask.seat].hear(ask, first=begins, closed=closed, turn=0)
        return sum(len(s.ids) for s in heard)

    def _begun(self, state: SummaryState, ask: Ask, prompt_tokens: int) -> SummaryState:
        if prompt_tokens > self.limit:
            raise UserError(
                f"the limit of a context is {self.limit} tokens, and what the environment says first "
                f"has {prompt_tokens}; raise the limit"
            )
        first = (ask.seat, ask.thread) not in state.begins
        if first and self.most and not any(m.role == "user" for m in ask.say):
            raise UserError(
                "summaries stand behind the user's first message, and this environment begins an episode "
                "without one; let it say the task as a message of the role user, or take summaries=0"
            )
        begins = {**state.begins, (ask.seat, ask.thread): ask.say}
        return replace(state, begins=begins, fresh=state.fresh | {(ask.seat, ask.thread)})

    def _go_on(self, state: SummaryState, ask: Ask, summary: str) -> Frame:
        """The turn that waited, in a new row."""
        text = f"\n\n{self.lead_in}\n{summary}"
        if self.carry:
            text += "\n\n" + "\n".join((LAST, *(m.text for m in ask.say)))
        say = behind_question(state.begins[ask.seat, ask.thread], text)
        fresh = state.fresh | {(ask.seat, ask.thread)}
        done = replace(state, waiting=None, summaries=(*state.summaries, summary), fresh=fresh)
        return Frame(
            state=done,
            asks=(replace(ask, say=say, new_row=True),),
            facts=_facts(done),
            state_key=state.state_key,
        )


def _facts(state: SummaryState) -> Mapping[str, Any]:
    return {"summaries": state.summaries, "unread": state.unread}


async def _frame(result: Any) -> Frame:
    """A world's method may be plain or async."""
    return await result if inspect.isawaitable(result) else result
