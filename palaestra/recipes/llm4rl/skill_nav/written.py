"""Waypoints in the built-in rooms where nobody is asked: a rule that a large model wrote."""

import re
from itertools import pairwise
from typing import Any

import palaestra as pl

ROOMS = """
#########
#...#...#
#...+.~.#
#...#.~.#
##~###+##
#...#...#
#...~...#
#...#...#
#########
"""
# rooms by their place, and from one to the next: before the door, in it, behind it
DOORS = {
    ("north-west", "north-east"): [(3, 2), (4, 2), (5, 2)],
    ("north-west", "south-west"): [(2, 3), (2, 4), (2, 5)],
    ("north-east", "south-east"): [(6, 3), (6, 4), (6, 5)],
    ("south-west", "south-east"): [(3, 6), (4, 6), (5, 6)],
}
Cell = tuple[int, int]


def written_waypoints(request: pl.ChatRequest) -> dict[str, Any]:
    """Through the doors between the rooms of start and goal, around by the north-east or south-west where they
    are across. A large model wrote the rule while this file was written, and knew the map.
    """
    text = request.messages[0].content
    cells = {
        int(i): (int(x), int(y))
        for i, x, y in re.findall(r"- (\d+): column (\d+), row (\d+)", text)
    }
    ends = re.search(r"The robot is at (\d+) and has to go to (\d+)", text)
    if ends is None or ROOMS.strip() not in text:
        raise pl.UserError("without a model that is asked, skill-nav plans in its own rooms alone")
    number = {cell: i for i, cell in cells.items()}
    start, goal = cells[int(ends[1])], cells[int(ends[2])]
    return {"waypoints": [number[c] for c in [*doors_between(start, goal), goal]]}


def room_of(cell: Cell) -> str:
    return f"{'north' if cell[1] <= 4 else 'south'}-{'west' if cell[0] <= 4 else 'east'}"


def doors_between(start: Cell, goal: Cell) -> list[Cell]:
    """Cells on the way between start and goal: before, in and behind each door, and where one of them is a
    door itself, the cell beside it in its room.
    """
    here, there = room_of(start), room_of(goal)
    rooms = list(dict.fromkeys([here, there]))
    if len(rooms) == 2 and (here, there) not in DOORS and (there, here) not in DOORS:
        across = {here, there} == {"north-west", "south-east"}
        rooms = [here, "north-east" if across else "south-east", there]
    way = beside(start)
    for one, other in pairwise(rooms):
        way += DOORS[one, other] if (one, other) in DOORS else DOORS[other, one][::-1]
    way = list(dict.fromkeys([*way, *beside(goal)]))
    way = way[way.index(start) + 1 :] if start in way else way
    return way[: way.index(goal)] if goal in way else way


def beside(cell: Cell) -> list[Cell]:
    """Beside a door, on the side of the room that it counts to."""
    sides = [c for door in DOORS.values() if door[1] == cell for c in (door[0], door[2])]
    return [c for c in sides if room_of(c) == room_of(cell)]
