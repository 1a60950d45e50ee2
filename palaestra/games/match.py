"""One game between given players, and what is kept of it."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from palaestra.abilities import KnowsSolved
from palaestra.context import Bench
from palaestra.errors import UserError
from palaestra.rollout.play import await_if_needed, frame_of, play
from palaestra.types import Act, Ask, Frame, Key, Player, Task, World
from palaestra.verifiers.base import strip_thinking
from palaestra.worlds.legal import legal_replies

ILLEGAL = "illegal"  # the fact that counts refused replies; of one seat, "illegal:SEAT"


Watch = Callable[[str, str, str], object]  # takes a seat, its player's name, and what it said


@dataclass
class Referee:
    """A world for one game, which remembers where the game stands, so that players can be told the
    legal replies, and counts by seat what was paid and which replies were refused: those that the
    world counts as illegal, or, where it counts none, those in which no listed reply stands.
    """

    world: World
    names: Mapping[str, str]
    watch: Watch | None = None
    frame: Frame = field(default_factory=lambda: Frame(state=None))
    paid: dict[str, float] = field(default_factory=dict)
    turns: dict[str, int] = field(default_factory=dict)
    illegal: dict[str, int] = field(default_factory=dict)
    transcript: list[dict[str, str]] = field(default_factory=list)
    forfeits: str = ""  # the seat whose refused reply ended the game

    def __post_init__(self) -> None:
        for counts in (self.paid, self.turns, self.illegal):
            counts.update(dict.fromkeys(self.seats, 0))

    @property
    def seats(self) -> tuple[str, ...]:
        return self.world.seats

    async def reset(self, task: Task, key: Key) -> Frame:
        return self._note(await frame_of(self.world.reset(task, key)))

    async def step(self, state: Any, acts: tuple[Act, ...], key: Key) -> Frame:
        before = self.frame.facts
        listed = [legal_replies(self.world, state, a.ask) for a in acts]
        frame = await frame_of(self.world.step(state, acts, key))
        if any(name.partition(":")[0] == ILLEGAL for name in frame.facts):
            refused = {
                a.ask.seat for a in acts if _refused(before, frame.facts, a.ask.seat, len(acts))
            }
        else:
            refused = {
                a.ask.seat for a, legal in zip(acts, listed, strict=True) if strays(a.text, legal)
            }
        for act in acts:
            self.turns[act.ask.seat] += 1
            shown = act.ask.say[-1].content if act.ask.say else ""
            self.transcript.append({"seat": act.ask.seat, "shown": shown, "said": act.text})
            if self.watch:
                self.watch(act.ask.seat, self.names[act.ask.seat], act.text)
        for seat in refused:
            self.illegal[seat] += 1
        self.forfeits = "" if frame.asks or not refused else min(refused)
        return self._note(frame)

    async def leave(self, state: Any) -> None:
        leave: Callable[[Any], Awaitable[None] | None] | None = getattr(self.world, "leave", None)
        if leave is not None:
            await await_if_needed(leave(state))

    def legal(self, ask: Ask) -> tuple[str, ...]:
        """The legal replies of a turn that is under way."""
        return legal_replies(self.world, self.frame.state, ask)

    def _note(self, frame: Frame) -> Frame:
        for (seat, _), amount in frame.pay.items():
            self.paid[seat] += float(amount)
        self.frame = frame
        return frame


def strays(text: str, legal: Sequence[str]) -> bool:
    """Whether none of the legal replies stands in a reply behind its thoughts; no list, no stray."""
    reply = strip_thinking(text).casefold()
    return bool(legal) and not any(
        re.search(rf"(?<!\w){re.escape(x.strip().casefold())}(?!\w)", reply) for x in legal
    )


def _refused(before: Mapping[str, Any], after: Mapping[str, Any], seat: str, movers: int) -> bool:
    """Whether the world counted the reply of a seat as illegal. Of several that reply at once, only
    a count for each seat says whose it was.
    """
    own = f"{ILLEGAL}:{seat}"
    name = own if own in after else ILLEGAL if movers == 1 else own
    return int(after.get(name, 0)) > int(before.get(name, 0))


Seat = Callable[[Referee], Player]  # a player for one game


async def play_game(
    bench: Bench,
    task: Task,
    seats: Mapping[str, tuple[str, Seat]],
    key: Key,
    world_key: Key,
    watch: Watch | None = None,
    *,
    keep: bool = False,
) -> dict[str, Any]:
    """Plays a task to its end.

    Args:
        seats: by seat, the name of its player and what makes the player for this game.
        key: of the players' random streams.
        world_key: of the world's.
        watch: is told every reply.
        keep: whether all that was shown and said is kept.

    Returns:
        {"players": by seat, "pay": by seat, "turns": by seat, "illegal": refused replies by seat,
        "forfeit": the seat that lost by one or "", "status": of the episode}; with `keep` also "solved",
        where the world says what that is, and "transcript", with "seat", "shown" and "said" of each reply.
    """
    referee = Referee(bench.world, {s: name for s, (name, _) in seats.items()}, watch)
    cast = {seat: make(referee) for seat, (_, make) in seats.items()}
    episode = await play(referee, cast, task, key, world_key, max_turns=bench.max_turns)
    line: dict[str, Any] = {
        "players": dict(referee.names),
        "pay": referee.paid,
        "turns": referee.turns,
        "illegal": referee.illegal,
        "forfeit": referee.forfeits,
        "status": episode.status,
    }
    if keep:
        solved = bench.world.solved if isinstance(bench.world, KnowsSolved) else None
        right = None if solved is None else sum(referee.paid.values()) >= solved - 1e-9
        line |= {"solved": right, "transcript": referee.transcript}
    return line | ({"error": str(episode.facts.get("error"))} if is_error(line) else {})


def is_error(line: Mapping[str, Any]) -> bool:
    """Whether a game broke off without a result."""
    return str(line["status"]).startswith("error")


def check_seats(bench: Bench, least: int = 1) -> tuple[str, ...]:
    """The seats of a bench's world. Raises UserError where there are fewer than `least`."""
    seats = bench.world.seats
    if len(seats) < least:
        raise UserError(
            f"{bench.name} has {len(seats)} seat for players here, and a game needs {least}; take a "
            "world that several players share, without against=..."
        )
    return seats


async def in_turn(
    works: Sequence[Callable[[], Awaitable[Any]]], together: int
) -> AsyncGenerator[Any]:
    """The results of works in their order, of which at most `together` run at a time."""
    door = asyncio.Semaphore(together)

    async def one(work: Callable[[], Awaitable[Any]]) -> Any:
        async with door:
            return await work()

    waiting = [asyncio.ensure_future(one(work)) for work in works]
    try:
        for task in waiting:
            yield await task
    finally:
        for task in waiting:
            task.cancel()
