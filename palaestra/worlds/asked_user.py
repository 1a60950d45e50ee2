"""An environment with a user in it, whose questions are judged: any world in which a seat `user` is asked.

    policy: go shelf          the environment answers, as ever
    policy: ask which cup     the environment asks the seat `user`, a model; its reply goes on to the policy

What the environment says to its seat `user` before the first question is what that user knows. The turn t of the
policy is paid

    r_t = what the environment pays + w_q [useful question] - c_step - c_over [questions > B]

A question is what the seat `user` hears last before it speaks, but for what it says before the policy's first turn.
Whether it is useful says `judge`, who reads what the user knows; what it says reaches the reward alone. The same
question is never useful twice.
"""

from __future__ import annotations

from collections.abc import Awaitable, Sequence
from dataclasses import field, replace
from typing import Any, Protocol

from palaestra.abilities import HoldsEpisodes
from palaestra.declared import declare
from palaestra.errors import UserError
from palaestra.rollout.play import await_if_needed, frame_of
from palaestra.schedule import check_bounds
from palaestra.types import Act, Ask, Frame, Key, Message, Task, World, stage, value_class
from palaestra.worlds.asking import Interview

USER = "user"  # the seat


class SpeaksForUser(Protocol):
    """Plays the user: says what follows on the messages of that seat. Raises Fault where nobody says anything."""

    def __call__(self, heard: Sequence[Message], key: Key) -> str | Awaitable[str]: ...


class JudgesQuestion(Protocol):
    """Says whether a question narrows down what the user has in mind, of which `known` is all that is known."""

    def __call__(
        self, known: str, talk: Interview, question: str, answer: str, key: Key
    ) -> bool | Awaitable[bool]: ...


@value_class
class AskedState:
    """The environment's own state, what its user heard, and the questions so far."""

    inner: Any
    heard: tuple[Message, ...] = ()
    known: str = ""
    talk: Interview = ()
    useful: tuple[bool, ...] = ()
    turns: int = 0
    earned: float = 0.0
    extra: float = field(
        default=0.0, compare=False
    )  # of the last turn, beside the environment's pay


@declare(
    facts=(
        "turns",
        ("asked_useful", int, "questions after which fewer things can be meant"),
        ("asked_idle", int, "other questions"),
        ("over_budget", int, "questions behind the budget"),
        ("earned", float, "what the environment itself paid"),
    )
)
@stage
class AskedUser:
    """The world of one seat that is left where a model plays the seat `user` of another.

    Args:
        world: the environment, with a seat `user` and one more.
        user: plays that seat.
        judge: says which question is useful; None = none is paid for.
        budget: questions that are free of c_over.
        useful, step_cost, over: w_q, c_step and c_over.
    """

    world: World
    user: SpeaksForUser
    judge: JudgesQuestion | None = None
    budget: int = 2
    useful: float = 0.2
    step_cost: float = 0.01
    over: float = 0.1

    def __post_init__(self) -> None:
        check_bounds("budget", self.budget, least=0)
        if USER not in self.world.seats or len(self.world.seats) != 2:
            raise UserError(
                f"the environment has the seats {', '.join(self.world.seats)}; here it has two, one of them "
                f"{USER!r}, which it asks where the agent asks something: Ask(seat={USER!r}, say=...)"
            )

    @property
    def seats(self) -> tuple[str, ...]:
        return tuple(s for s in self.world.seats if s != USER)

    async def reset(self, task: Task, key: Key) -> Frame:
        frame = await frame_of(self.world.reset(task, key))
        return await self._with_answers(AskedState(inner=frame.state), frame, key)

    async def step(self, state: AskedState, acts: tuple[Act, ...], key: Key) -> Frame:
        frame = await frame_of(self.world.step(state.inner, acts, key))
        begun = replace(state, turns=state.turns + 1, extra=-self.step_cost)
        return await self._with_answers(begun, frame, key)

    async def leave(self, state: AskedState) -> None:
        if isinstance(self.world, HoldsEpisodes):
            await await_if_needed(self.world.leave(state.inner))

    async def _with_answers(self, state: AskedState, frame: Frame, key: Key) -> Frame:
        """The next frame in which the other seat is asked, or nobody is."""
        policy, paid, facts = self.seats[0], 0.0, dict(frame.facts)
        while True:
            paid += sum(x for (seat, _), x in frame.pay.items() if seat == policy)
            facts |= frame.facts
            asked = [a for a in frame.asks if a.seat == USER]
            if not asked:
                break
            if len(frame.asks) > 1:
                raise UserError(f"the environment asks the seat {USER!r} and another at once")
            here = (*key, USER, len(state.heard))
            state, act = await self._answered(state, asked[0], here)
            frame = await frame_of(self.world.step(frame.state, (act,), here))
        idle = len(state.talk) - sum(state.useful)
        state = replace(state, inner=frame.state, earned=state.earned + paid)
        facts |= {
            "turns": state.turns,
            "asked_useful": sum(state.useful),
            "asked_idle": idle,
            "over_budget": max(0, len(state.talk) - self.budget),
            "earned": state.earned,
        }
        pay = {(policy, ""): paid + state.extra} if state.turns else {}
        return replace(frame, state=state, pay=pay, facts=facts)

    async def _answered(self, state: AskedState, ask: Ask, key: Key) -> tuple[AskedState, Act]:
        """What the user says, and what the question was worth."""
        *before, last = ask.say or (Message(role="user", content=""),)
        heard = (*state.heard, *before)
        known = state.known or "\n".join(m.shown for m in heard)
        question = " ".join(last.shown.split())
        answer = await await_if_needed(self.user((*heard, last), key))
        message = Message(role="assistant", content=answer)
        act = Act(ask=ask, text=answer, call=None, finish="eos", n_tokens=0)
        state = replace(state, heard=(*heard, last, message), known=known)
        if not state.turns:  # the user speaks first
            return state, act
        useful = False
        if self.judge is not None and question not in dict(state.talk):
            useful = bool(
                await await_if_needed(self.judge(known, state.talk, question, answer, key))
            )
        talk = (*state.talk, (question, answer))
        extra = state.extra + self.useful * useful - self.over * (len(talk) > self.budget)
        return replace(state, talk=talk, useful=(*state.useful, useful), extra=extra), act
