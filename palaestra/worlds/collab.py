"""What the two games in rooms share, Collab Capture and Collab Escape: alice and bob move at once, and
are paid alike.

    a turn    both are shown the whole state and the actions that are theirs; both reply with one
    end       a win pays both `score(turn)`, a loss or `turns` turns without a win pay both 0

The action that stands last in a reply counts. In a reply with none the player does not move
(illegal="idle"), or such a reply cannot be said ("never").

`reply` is a player of the best joint plan (`joint_plan`): if both seats play it, the team earns the most
that it can.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import fields, replace
from functools import lru_cache
from itertools import product
from typing import Any, ClassVar, Literal, Protocol

import numpy as np

from palaestra.declared import declare
from palaestra.errors import UserError
from palaestra.suggest import no_setting
from palaestra.tasks.spec import parse_alone
from palaestra.types import Act, Ask, Frame, Key, Message, Task, rng_of, stage, value_class
from palaestra.verifiers.base import strip_thinking
from palaestra.worlds.adapters.base import last_named
from palaestra.worlds.joint_plans import JointPlan, Moves, TeamOutcome, joint_plan

ALICE, BOB = SEATS = ("alice", "bob")
Links = Mapping[int, tuple[int, ...]]


def links_of(text: str) -> Links:
    """Neighbours by room of "1-2 2-3", in the order of their numbers."""
    pairs = [(int(a), int(b)) for a, _, b in (link.partition("-") for link in text.split())]
    rooms = sorted({r for pair in pairs for r in pair})
    return {r: tuple(sorted({a + b - r for a, b in pairs if r in (a, b)})) for r in rooms}


def map_text(links: Links) -> str:
    """The links between rooms, each once."""
    return ", ".join(f"{a}-{b}" for a, others in links.items() for b in others if a < b)


def move_text(room: int) -> str:
    return f"move to room {room}"


class CollabPlace(Protocol):
    """Where everybody and everything is; it says nothing of the turn."""

    @property
    def rooms(self) -> tuple[int, int]:
        """Of alice and bob."""
        ...


@value_class
class CollabState:
    """A place, the turns that were played, and replies without an action, by seat."""

    place: Any
    turn: int = 0
    illegal: tuple[int, int] = (0, 0)


@stage
class CollabTasks:
    """Games of one start: they differ by what chance does in them."""

    name: str = "collab"
    size: int | None = None

    def task(self, split: str, index: int) -> Task:
        return Task(id=f"{self.name}/{split}/{index}", domain=self.name)


@declare(
    facts=(
        ("team_turns", int, "turns that a team has played in a game of rooms"),
        ("illegal:alice", int, "replies of alice without an action"),
        ("illegal:bob", int, "replies of bob without an action"),
        "result",
    )
)
@stage
class CollabGame:
    """What both games are made of; a game says `start`, `actions`, `outcomes`, `score` and what is
    shown.

    Args:
        turns: after which a game that is not won is lost.
        brief: the state alone is shown, without the rules, for models with a short context.
        illegal: what becomes of a reply without an action: "idle" or "never", see the module.
    """

    turns: int = 12
    brief: bool = False
    illegal: Literal["idle", "never"] = "idle"
    seats: tuple[str, ...] = SEATS
    bounds: ClassVar[tuple[float, float]] = (0.0, 1.0)
    idle: ClassVar[str] = "wait"  # the action of who does nothing
    won: ClassVar[str] = "won"  # the result of a win, and of a loss
    lost: ClassVar[str] = "lost"

    def __post_init__(self) -> None:
        if not 1 <= self.turns <= 100:
            raise UserError(f"{type(self).__name__}: turns must be 1 to 100, not {self.turns}")

    @property
    def most_turns(self) -> int:
        """Replies of a game."""
        return len(self.seats) * self.turns

    @property
    def solved(self) -> float:
        """The least that a win pays."""
        return self.score(self.turns)

    # ---- what a game says of itself

    @property
    def start(self) -> CollabPlace:
        raise NotImplementedError

    def actions(self, place: Any, seat: str) -> tuple[str, ...]:
        """What a seat may do in a place."""
        raise NotImplementedError

    def outcomes(self, place: Any, moves: Moves) -> tuple[TeamOutcome, ...]:
        """What the actions of alice and bob may lead to."""
        raise NotImplementedError

    def score(self, turn: int) -> float:
        """What a win in that turn, counted from 1, pays."""
        raise NotImplementedError

    def whereabouts(self, place: Any) -> dict[str, int]:
        """The room of everybody, by name."""
        raise NotImplementedError

    def place_text(self, place: Any, seat: str) -> list[str]:
        """A place in lines, as a seat is told it."""
        raise NotImplementedError

    def rules(self, seat: str) -> str:
        raise NotImplementedError

    # ---- the world

    def reset(self, task: Task, key: Key) -> Frame:
        return self._ask(CollabState(place=self.start))

    def step(self, state: CollabState, acts: tuple[Act, ...], key: Key) -> Frame:
        texts = {a.ask.seat: a.text for a in acts}
        read = tuple(self.read(state, s, texts[s]) for s in self.seats)
        illegal = tuple(n + (r is None) for n, r in zip(state.illegal, read, strict=True))
        moves = tuple(r or self.idle for r in read)
        outcomes = self.outcomes(state.place, moves)
        drawn = rng_of((*key, "outcome")).choice(len(outcomes), p=[x.chance for x in outcomes])
        outcome = outcomes[int(drawn)]
        state = replace(state, place=outcome.then, turn=state.turn + 1, illegal=illegal)
        if outcome.won is None and state.turn < self.turns:
            return self._ask(state)
        pay = self.score(state.turn) if outcome.won else 0.0
        results: dict[bool | None, str] = {True: self.won, False: self.lost, None: "out of turns"}
        return Frame(
            state=state,
            pay={(seat, ""): pay for seat in self.seats},
            facts={**facts_of(state), "result": results[outcome.won]},
            state_key=repr(state.place),
        )

    def read(self, state: CollabState, seat: str, text: str) -> str | None:
        """The action that stands last in a reply; None = there is none."""
        return last_named(strip_thinking(text), self.legal_for(state, seat))

    def legal_for(self, state: CollabState, seat: str) -> tuple[str, ...]:
        """What a seat may do."""
        return self.actions(state.place, seat)

    def shown(self, state: CollabState, seat: str) -> str:
        """What a seat is asked."""
        actions = self.legal_for(state, seat)
        lines = self.place_text(state.place, seat)
        if self.brief:
            return "\n".join([f"you {seat}", *lines, f"actions: {', '.join(actions)}"])
        return "\n".join(
            [
                self.rules(seat),
                "",
                f"Turn {state.turn + 1} of {self.turns}. {' '.join(lines)}",
                f"Your actions: {', '.join(actions)}.",
                "Reply with one of them.",
            ]
        )

    # ---- the best joint plan

    def plan(self) -> JointPlan:
        """The game, solved."""
        return plan_of(self)

    def best_moves(self, state: CollabState) -> list[Moves]:
        """The joint moves of the best plan."""
        return self.plan().best(state.place, self.turns - state.turn)

    def reply(self, state: CollabState, seat: str, rng: np.random.Generator) -> str:
        """What a player of the best plan does: the first of its joint moves, so that two of them agree."""
        return self.best_moves(state)[0][self.seats.index(seat)]

    def ceiling(self) -> float:
        """The most that a team can expect to be paid."""
        return self.plan().value(self.start, self.turns)

    def _ask(self, state: CollabState) -> Frame:
        asks = tuple(
            Ask(
                seat=seat,
                say=(Message(role="user", content=self.shown(state, seat)),),
                new_row=True,
                choices=self.legal_for(state, seat) if self.illegal == "never" else None,
            )
            for seat in self.seats
        )
        facts = facts_of(state)
        return Frame(state=state, asks=asks, facts=facts, state_key=repr(state.place))


def facts_of(state: CollabState) -> dict[str, Any]:
    illegal = {f"illegal:{seat}": n for seat, n in zip(SEATS, state.illegal, strict=True)}
    return {"team_turns": state.turn, **illegal}


@lru_cache(maxsize=8)
def plan_of(game: CollabGame) -> JointPlan:
    """The plan of a game, solved once in a process."""

    def joint_moves(place: Any) -> Sequence[Moves]:
        return tuple(product(*(game.actions(place, seat) for seat in SEATS)))

    pays = [game.score(turn) for turn in range(game.turns, 0, -1)]
    return joint_plan(game.start, joint_moves, game.outcomes, pays)


def game_by_name(spec: str, kind: type[CollabGame]) -> tuple[CollabTasks, CollabGame]:
    """A game of `NAME(turns=N,brief=True,...)`, and its tasks. Raises UserError for other settings."""
    name = spec.partition("(")[0]
    given = parse_alone(spec, f"{name}(turns=N,brief=True)").settings
    known: dict[str, Any] = {f.name: f for f in fields(kind) if f.name != "seats"}
    for key, value in given.items():
        if key not in known:
            raise UserError(no_setting(name, key, list(known)))
        words = WORDS.get(key)
        if words and value not in words:
            raise UserError(f"{spec}: {key} is {value!r}; it takes {' or '.join(words)}")
        if not words and type(value) is not type(known[key].default):
            ways = "a whole number" if type(known[key].default) is int else "true or false"
            raise UserError(f"{spec}: {key} is {value!r}; it takes {ways}")
    return CollabTasks(name=spec), kind(**given)


WORDS: Mapping[str, tuple[str, ...]] = {
    "illegal": ("idle", "never"),
    "thief": ("stays", "released"),
}
