"""Collab Capture: two players catch a thief in nine rooms, who runs from the nearest of them.

    links     1-2 1-6 2-3 3-4 4-5 5-6 5-7 6-9 7-8
    doors     1-2 is opened and shut by a button in room 9, 3-4 by one in room 8; both are open at first
    actions   stay; move to a linked room if no shut door is between; press the button where there is one
    start     alice 1, bob 2, thief 9
    caught    the thief and a player are in one room after a turn, or have passed each other (`crossing`)

All three move at once, by the doors as they stood at the start of the turn. The thief knows where the
players go, and goes to the room that is farthest from the nearer one of them:

    "stays"     distance in links, by the doors as they stand, and the thief may stay where it is; of rooms
                equally far the lowest number. The quickest capture takes 2 turns.
    "released"  that of the paper's program: distance is the difference of the rooms' numbers, and the thief
                may not stay. So in its first turn it must leave room 9 for 6, where alice can go: 1 turn.

Source: Agrawal et al., arXiv:2310.03903, and its program (eric-ai-lab/llm_coordination), whose prompt counts
a crossing as caught and whose code does not.

A capture in turn t pays (turns - t + 1) / turns.
"""

from __future__ import annotations

from typing import ClassVar, Literal

from palaestra.types import stage, value_class
from palaestra.worlds.collab import SEATS, CollabGame, links_of, map_text, move_text
from palaestra.worlds.joint_plans import Moves, TeamOutcome

LINKS = links_of("1-2 1-6 2-3 3-4 4-5 5-6 5-7 6-9 7-8")
DOORS = ((1, 2), (3, 4))
BUTTONS = {9: 0, 8: 1}  # the door that a room's button works
PRESS, STAY = "press the button", "stay"
FAR = len(LINKS)  # of a room that cannot be reached
LISTED = {6: (5, 9, 1)}  # the paper's program has these neighbours in another order than by number


@value_class
class CapturePlace:
    """The rooms of alice and bob, the thief's, and which doors are open."""

    rooms: tuple[int, int] = (1, 2)
    thief: int = 9
    doors: tuple[bool, bool] = (True, True)


def neighbours(room: int, doors: tuple[bool, bool]) -> tuple[int, ...]:
    """The rooms that can be entered from a room."""
    shut = {pair for pair, is_open in zip(DOORS, doors, strict=True) if not is_open}
    return tuple(r for r in LINKS[room] if (min(r, room), max(r, room)) not in shut)


def distances(room: int, doors: tuple[bool, bool]) -> dict[int, int]:
    """Links on the way from a room, of the rooms that can be reached."""
    known, edge = {room: 0}, [room]
    for r in edge:
        for other in neighbours(r, doors):
            if other not in known:
                known[other] = known[r] + 1
                edge.append(other)
    return known


@stage
class CollabCapture(CollabGame):
    """The world; see the module.

    Args:
        thief: how it runs.
        crossing: whether a player and the thief who change rooms with each other meet.
    """

    thief: Literal["stays", "released"] = "stays"
    crossing: bool = True
    idle: ClassVar[str] = STAY
    won: ClassVar[str] = "captured"

    @property
    def start(self) -> CapturePlace:
        return CapturePlace()

    def score(self, turn: int) -> float:
        return (self.turns - turn + 1) / self.turns

    def actions(self, place: CapturePlace, seat: str) -> tuple[str, ...]:
        room = place.rooms[SEATS.index(seat)]
        moves = tuple(map(move_text, neighbours(room, place.doors)))
        return (STAY, *moves, *((PRESS,) if room in BUTTONS else ()))

    def outcomes(self, place: CapturePlace, moves: Moves) -> tuple[TeamOutcome, ...]:
        doors, rooms = list(place.doors), list[int]()
        for room, move in zip(place.rooms, moves, strict=True):
            if move == PRESS:
                doors[BUTTONS[room]] = not doors[BUTTONS[room]]
            rooms.append(room if move in (PRESS, STAY) else int(move.rpartition(" ")[2]))
        thief = self.flight(place, (rooms[0], rooms[1]))
        then = CapturePlace(rooms=(rooms[0], rooms[1]), thief=thief, doors=(doors[0], doors[1]))
        crossed = any(
            before == thief and after == place.thief
            for before, after in zip(place.rooms, rooms, strict=True)
        )
        caught = thief in rooms or (self.crossing and crossed)
        return (TeamOutcome(chance=1.0, then=then, won=True if caught else None),)

    def flight(self, place: CapturePlace, rooms: tuple[int, int]) -> int:
        """Where the thief goes when the players go to `rooms`."""
        free = neighbours(place.thief, place.doors)
        if self.thief == "released":
            away = lambda r: min(abs(r - x) for x in rooms)
            order = [r for r in LISTED.get(place.thief, free) if r in free]
            return max(order, key=away) if order else place.thief
        reach = [distances(x, place.doors) for x in rooms]
        away = lambda r: min(d.get(r, FAR) for d in reach)
        return max(sorted((place.thief, *free)), key=away)

    def whereabouts(self, place: CapturePlace) -> dict[str, int]:
        return {**dict(zip(SEATS, place.rooms, strict=True)), "the thief": place.thief}

    def place_text(self, place: CapturePlace, seat: str) -> list[str]:
        stands = {True: "open", False: "shut"}
        doors = [(f"{a}-{b}", stands[x]) for (a, b), x in zip(DOORS, place.doors, strict=True)]
        alice, bob = place.rooms
        if self.brief:
            door_text = " ".join(f"{door} {x}" for door, x in doors)
            return [f"alice {alice} bob {bob} thief {place.thief}", door_text]
        where = f"Alice is in room {alice}, Bob in room {bob}, the thief in room {place.thief}."
        return [where, *(f"The door {door} is {x}." for door, x in doors)]

    def rules(self, seat: str) -> str:
        other = next(s for s in SEATS if s != seat).capitalize()
        thief = {
            "stays": "to the room that is farthest from the nearer one of you, or stays",
            "released": "to the linked room whose number differs most from the nearer one of your rooms",
        }[self.thief]
        return (
            f"You are {seat.capitalize()}. You and {other} catch a thief together, in as few turns as "
            f"you can. Rooms are linked: {map_text(LINKS)}. There is a door between 1 and 2, which a "
            "button in room 9 opens and shuts, and one between 3 and 4, with its button in room 8. "
            "Nobody passes a shut door. All three move at once and see everything. The thief knows "
            f"where you go, and moves {thief}. It is caught if it is in a room with one of you"
            + (", or if it changes rooms with one of you." if self.crossing else ".")
        )
