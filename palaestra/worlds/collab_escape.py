"""Collab Escape: two players mend two generators in eight rooms, and flee through a gate from a killer.

    links        1-2 1-8 2-3 3-4 3-7 4-5 5-6 6-7 7-8
    generators   in 1 and 5; each needs two fixes without a pause: one player in two turns, or both in one. A
                 generator that nobody fixes in a turn before it runs starts again at 0
    actions      wait; move to a linked room; fix the generator of the room that does not run yet
    start        alice 1, bob 2, killer 6
    killer       goes to where a player in a linked room stood at the start of the turn, alice first; if there
                 is none to a linked room at random, each as often
    end          a player in one room with the killer after a turn: lost, which is looked at first; both
                 generators run and a player is in room 7: won

Source: Agrawal et al., arXiv:2310.03903, and its program (eric-ai-lab/llm_coordination). The best joint
controller wins within 5 turns with probability 1/36, 6 turns 25/27, 7 turns 187/192, and always within 8.

A win pays 1.
"""

from __future__ import annotations

from typing import ClassVar

from palaestra.types import stage, value_class
from palaestra.worlds.collab import SEATS, CollabGame, links_of, map_text, move_text
from palaestra.worlds.joint_plans import Moves, TeamOutcome

LINKS = links_of("1-2 1-8 2-3 3-4 3-7 4-5 5-6 6-7 7-8")
GENERATORS, GATE, FIXES = (1, 5), 7, 2
FIX, WAIT = "fix the generator", "wait"


@value_class
class EscapePlace:
    """The rooms of alice and bob, the killer's, and the fixes of each generator."""

    rooms: tuple[int, int] = (1, 2)
    killer: int = 6
    fixes: tuple[int, int] = (0, 0)

    @property
    def gate_open(self) -> bool:
        return all(n >= FIXES for n in self.fixes)


@stage
class CollabEscape(CollabGame):
    """The world; see the module."""

    idle: ClassVar[str] = WAIT
    won: ClassVar[str] = "escaped"
    lost: ClassVar[str] = "caught"

    @property
    def start(self) -> EscapePlace:
        return EscapePlace()

    def score(self, turn: int) -> float:
        return 1.0

    def actions(self, place: EscapePlace, seat: str) -> tuple[str, ...]:
        room = place.rooms[SEATS.index(seat)]
        moves = tuple(map(move_text, LINKS[room]))
        broken = room in GENERATORS and place.fixes[GENERATORS.index(room)] < FIXES
        return (WAIT, *moves, *((FIX,) if broken else ()))

    def outcomes(self, place: EscapePlace, moves: Moves) -> tuple[TeamOutcome, ...]:
        at = [r for r, m in zip(place.rooms, moves, strict=True) if m == FIX]
        after = [
            n if n >= FIXES else min(FIXES, n + at.count(room)) if room in at else 0
            for room, n in zip(GENERATORS, place.fixes, strict=True)
        ]
        rooms = [
            r if m in (FIX, WAIT) else int(m.rpartition(" ")[2])
            for r, m in zip(place.rooms, moves, strict=True)
        ]
        hunted = self.hunts(place)
        return tuple(
            self._outcome(
                1 / len(hunted),
                EscapePlace(rooms=(rooms[0], rooms[1]), killer=k, fixes=(after[0], after[1])),
            )
            for k in hunted
        )

    def hunts(self, place: EscapePlace) -> tuple[int, ...]:
        """Where the killer may go, each as likely."""
        near = [r for r in place.rooms if r in LINKS[place.killer]]
        return tuple(near[:1]) or LINKS[place.killer]

    def _outcome(self, chance: float, place: EscapePlace) -> TeamOutcome:
        won = None
        if place.killer in place.rooms:
            won = False
        elif place.gate_open and GATE in place.rooms:
            won = True
        return TeamOutcome(chance=chance, then=place, won=won)

    def whereabouts(self, place: EscapePlace) -> dict[str, int]:
        return {**dict(zip(SEATS, place.rooms, strict=True)), "the killer": place.killer}

    def place_text(self, place: EscapePlace, seat: str) -> list[str]:
        alice, bob = place.rooms
        fixes = list(zip(GENERATORS, place.fixes, strict=True))
        if self.brief:
            fix_text = " ".join(f"g{room} {n}/{FIXES}" for room, n in fixes)
            return [f"alice {alice} bob {bob} killer {place.killer}", fix_text]
        where = f"Alice is in room {alice}, Bob in room {bob}, the killer in room {place.killer}."
        mended = [f"The generator in room {room} has {n} of {FIXES} fixes." for room, n in fixes]
        return [where, *mended, f"The gate is {'open' if place.gate_open else 'shut'}."]

    def rules(self, seat: str) -> str:
        other = next(s for s in SEATS if s != seat).capitalize()
        return (
            f"You are {seat.capitalize()}. You and {other} escape together from a killer. Rooms are "
            f"linked: {map_text(LINKS)}. The generators in rooms {GENERATORS[0]} and {GENERATORS[1]} "
            f"need {FIXES} fixes each, without a turn in between in which nobody fixes: one of you in "
            "two turns, or both of you in one. When both run, the gate in room "
            f"{GATE} opens, and you win if one of you is there. You lose if the killer is in a room "
            "with one of you after a turn. All move at once. The killer goes to where one of you is at "
            "the start of the turn, if that room is linked to the killer's, Alice first; else to a "
            "linked room at random."
        )
