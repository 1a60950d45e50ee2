"""How one episode is made: a world asks, players answer, rows grow. The same function for a
question, tools, games, users.
"""

from __future__ import annotations

import asyncio
import inspect
import math
import time
from collections.abc import Coroutine, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Protocol, runtime_checkable

from palaestra.abilities import HoldsEpisodes, ReadsCalls
from palaestra.declared import declare
from palaestra.errors import Fatal, Fault, UserError
from palaestra.models.routes import later_choices
from palaestra.types import (
    Act,
    Ask,
    Call,
    Completion,
    Episode,
    Event,
    Frame,
    Key,
    Malformed,
    Message,
    Player,
    Reward,
    Row,
    Segment,
    Task,
    World,
    payment,
)

Who = tuple[str, str]  # (seat, thread)


@runtime_checkable
class Shortens(Protocol):
    """A world whose prompts can be made shorter by a setting."""

    @property
    def shorter(self) -> str:
        """What to do where a prompt does not fit into a context; "" = nothing can be done."""
        ...


@dataclass
class Transcript:
    """An episode in the making. `heard` are the messages of a thread's live row, for players that
    read text.
    """

    rows: list[Row] = field(default_factory=list)
    live: dict[Who, int] = field(default_factory=dict)
    heard: dict[Who, tuple[Message, ...]] = field(default_factory=dict)
    # (seat, payment at the seat's last token)
    paid: list[tuple[str, Event]] = field(default_factory=list)
    facts: dict[str, Any] = field(default_factory=dict)
    # before each turn: the world's state key, as text
    states: list[str | None] = field(default_factory=list)
    # of turns with choices: how likely a legal reply was
    masses: dict[int, float] = field(default_factory=dict)


async def await_if_needed(result: Any) -> Any:
    """A world's method may be plain or async."""
    return await result if inspect.isawaitable(result) else result


async def frame_of(result: Any) -> Frame:
    return await await_if_needed(result)


async def gather_turns(turns: Iterable[Coroutine[Any, Any, Act]]) -> list[Act]:
    """Simultaneous turns, in order. Where one fails the others are called off: nobody would hear
    them.
    """
    try:
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(t) for t in turns]
    except ExceptionGroup as failed:
        raise failed.exceptions[0] from None
    return [t.result() for t in tasks]


@declare(
    facts=(
        ("states", tuple, "by turn, what names the situation that it began in"),
        (
            "legal_mass",
            tuple,
            "by turn, how likely the unrestricted policy was to say a legal reply",
        ),
        "error",
    )
)
async def play(
    world: World,
    cast: Mapping[str, Player],
    task: Task,
    key: Key,
    world_key: Key,
    *,
    max_turns: int = 64,
) -> Episode:
    """Plays `task` to its end. `key` seeds the players, `world_key` the world (shared by the
    episodes of a group).

    A `Fault` ends the episode with status "error:CAUSE" and no reward; but where the policy has
    filled a context with what it said itself, the episode is cut there and keeps what it was paid.
    The fact "states" holds the world's state key before every turn, by turn number, where the world
    gives keys; "legal_mass" how likely a legal reply was, `exp(Choices.log_mass)`, in each turn
    whose reply an engine chose among the world's. A world that holds something for the episode is
    told of its end, whatever that is.
    """
    book, n, begin = Transcript(), 0, time.perf_counter()
    frame: Frame | None = None
    try:
        frame = await frame_of(world.reset(task, world_key))
        book.facts |= frame.facts
        while frame.asks and n < max_turns:
            book.states += [_state_text(frame.state_key)] * len(frame.asks)
            acts = await gather_turns(
                turn(book, cast, a, (*key, a.seat, a.thread, n + i), n + i)
                for i, a in enumerate(frame.asks)
            )
            n += len(acts)
            frame = await frame_of(world.step(frame.state, tuple(acts), (*world_key, n)))
            book.facts |= frame.facts
            book.paid += [(who[0], _payment(book, who, float(x))) for who, x in frame.pay.items()]
        status = _ending(book, frame)
    except Fatal:
        raise
    except Fault as fault:
        if fault.cause != "context" or not _has_sampled(book):
            return Episode(
                rows=tuple(book.rows),
                status=f"error:{fault.cause}",
                facts=book.facts | {"error": _told(fault, world)},
                seconds=time.perf_counter() - begin,
            )
        status = "truncated:context"
    finally:
        if frame is not None and isinstance(world, HoldsEpisodes):
            await await_if_needed(world.leave(frame.state))
    if any(k is not None for k in book.states):
        book.facts["states"] = tuple(book.states)
    if book.masses:
        book.facts["legal_mass"] = tuple(book.masses[n] for n in sorted(book.masses))
    return Episode(
        rows=tuple(book.rows),
        status=status,
        facts=book.facts,
        reward=world_reward(book, world.seats),
        seconds=time.perf_counter() - begin,
    )


async def turn(book: Transcript, cast: Mapping[str, Player], ask: Ask, key: Key, n: int) -> Act:
    """One seat speaks: the world's messages are appended, then what the player says."""
    who, player = (ask.seat, ask.thread), cast[ask.seat]
    if ask.choices == ():
        raise UserError(f"the seat {ask.seat!r} is asked and no reply is legal: choices is empty")
    at = _row_of(book, who, ask, player.name)
    row = book.rows[at]
    first = not row.segments
    closed = not first and row.segments[-1].finish == "eos"
    heard = player.hear(ask, first=first, closed=closed, turn=n)
    for segment in heard:
        row = row.add(segment)
    book.heard[who] = (*book.heard.get(who, ()), *ask.say)
    sample = await player.act(row, book.heard[who], ask, key)
    warm = player.temperature if ask.temperature is None else ask.temperature or 1.0
    sampled = Segment(
        ids=sample.ids,
        logp=sample.logp if sample.ids or player.policy else None,  # a script has no tokens
        author=player.name,
        policy=player.policy,
        trained=bool(player.policy),
        turn=n,
        temperature=warm,
        version=sample.version,
        moved=sample.moved,
        text=sample.text,
        finish=sample.finish,
        choices=sample.choices,
        experts=later_choices(row, sample.experts),
    )
    book.rows[at] = row.add(sampled)
    if sample.choices is not None:
        book.masses[n] = math.exp(sample.choices.log_mass)
    elif ask.choices is not None:
        check_choice(player.name, sample, ask.choices)
    begun = "".join(s.text for s in heard if s.replies) or ask.prefix
    text = begun + sample.text[: sample.cut]
    book.heard[who] = (
        *book.heard[who],
        Message(role="assistant", content=text, author=player.name),
    )
    calls = _calls(player, ask, text, sample.finish)
    return Act(
        ask=ask,
        text=text,
        call=calls[0] if calls else None,
        calls=calls,
        finish=sample.finish,
        n_tokens=len(sample.ids),
        sample=sample,
        n_context=len(row.context()),
        temperature=warm,
    )


def check_choice(name: str, sample: Completion, choices: tuple[str, ...]) -> None:
    """Raises UserError for a player that nobody holds to the legal replies and that says another."""
    if sample.text[: sample.cut].strip() not in map(str.strip, choices):
        legal = ", ".join(map(repr, choices[:8])) + (", ..." if choices[8:] else "")
        raise UserError(f"{name} says {sample.text[:60]!r}, and the world takes one of {legal}")


def _calls(player: Player, ask: Ask, text: str, finish: str) -> tuple[Call | Malformed, ...]:
    """What a turn calls: where the world offers tools in the way of the player's family, else in a
    tag.
    """
    if ask.tools and isinstance(player, ReadsCalls):
        return player.read_calls(text, finish, ask.tools)
    call = player.parse(text, finish)
    return () if call is None else (call,)


def _told(fault: Fault, world: World) -> str:
    """The fault in words, with the world's remedy for prompts that are too long."""
    remedy = world.shorter if fault.cause == "context" and isinstance(world, Shortens) else ""
    return f"{fault}; {remedy}" if remedy else str(fault)


def _ending(book: Transcript, frame: Frame) -> str:
    """The status of an episode that came to its last frame."""
    status = "truncated:turns" if frame.asks else frame.status
    if status == "finished" and any(
        r.segments[-1].finish == "length" for r in book.rows if r.segments
    ):
        status = "truncated:length"
    return status


def _has_sampled(book: Transcript) -> bool:
    return any(s.policy and s.logp for r in book.rows for s in r.segments)


def _state_text(state_key: Any) -> str | None:
    """Text, so that whatever a world takes as a key can be compared and saved."""
    return state_key if state_key is None or isinstance(state_key, str) else repr(state_key)


def _row_of(book: Transcript, who: Who, ask: Ask, name: str) -> int:
    """The place of the row that a turn goes on with, which may be a new one."""
    if ask.new_row or who not in book.live:
        segments, heard = _beginning(book, who[0], ask.begins, name)
        book.rows.append(Row(segments=segments, seat=who[0], thread=who[1]))
        book.live[who] = len(book.rows) - 1
        book.heard[who] = heard
    return book.live[who]


def _beginning(
    book: Transcript, seat: str, begins: tuple[str, int] | None, name: str
) -> tuple[tuple[Segment, ...], tuple[Message, ...]]:
    """What a new row has before its first turn: the first replies of another one, with all that
    came before them. They are context, for they are trained where they were sampled.
    """
    if begins is None:
        return (), ()
    other = (seat, begins[0])
    row, heard = book.rows[book.live[other]], book.heard[other]
    replies = [n for n, s in enumerate(row.segments, 1) if s.finish]
    spoken = [n for n, m in enumerate(heard, 1) if m.role == "assistant" and m.author == name]
    kept = row.segments[: replies[begins[1] - 1]]
    context = (
        replace(s, trained=False, policy="", logp=None, version=None, moved=(), choices=None)
        for s in kept
    )
    return tuple(context), heard[: spoken[begins[1] - 1]]


def _payment(book: Transcript, who: Who, amount: float) -> Event:
    row = book.live.get(who, -1)  # -1: a seat that never spoke has a reward and no tokens
    seen = sum(len(s.ids) for s in book.rows[row].segments if not s.hidden) if row >= 0 else 0
    return Event(row=row, token=seen - 1, value=amount, part=payment(who[0]))


def world_reward(book: Transcript, seats: tuple[str, ...]) -> Reward | None:
    """What the world paid: the total is the first seat's, every seat's sum is a part, each payment
    an event. None = no pay.
    """
    if not book.paid:
        return None
    parts = {payment(s): sum(e.value for seat, e in book.paid if seat == s) for s in seats}
    events = tuple(e for _, e in book.paid)
    return Reward(
        total=parts[payment(seats[0])], parts=parts if len(seats) > 1 else {}, events=events
    )
