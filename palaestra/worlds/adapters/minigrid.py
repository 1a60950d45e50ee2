"""MiniGrid's and BabyAI's views in words.

An observation is {"image" [W, H, 3], "direction", "mission"}: a cell of the image has the numbers of an
object, a colour and a state. The player stands in the middle of the last row and looks towards row 0;
the cell that it stands on has what it carries. The numbers are those of minigrid.core.constants
(https://minigrid.farama.org).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

OBJECTS = ("unseen", "empty", "wall", "floor", "door", "key", "ball", "box", "goal", "lava")
COLOURS = ("red", "green", "blue", "purple", "yellow", "grey")
STATES = ("open", "closed", "locked")  # of a door
DIRECTIONS = ("east", "south", "west", "north")
COLOURED = ("door", "key", "ball", "box")
PASSED = ("unseen", "empty", "floor", "wall")  # objects that are not listed


def is_view(observation: Any) -> bool:
    """Whether an observation has MiniGrid's form."""
    if not isinstance(observation, Mapping) or {*observation} != {"image", "direction", "mission"}:
        return False
    return np.ndim(observation["image"]) == 3 and np.shape(observation["image"])[2] == 3


def view_in_words(observation: Mapping[str, Any]) -> str:
    """The mission, where the player looks, what it carries, what it sees, nearest first, and how many
    steps forward are free.
    """
    image = np.asarray(observation["image"])
    width, height, _ = image.shape
    middle, last = width // 2, height - 1
    seen = [
        (last - row + abs(column - middle), f"{name} {place(column - middle, last - row)}")
        for row in range(height)
        for column in range(width)
        if (column, row) != (middle, last) and (name := name_cell(image[column, row]))
    ]
    carried = name_cell(image[middle, last]) or "nothing"
    lines = (
        f"mission: {observation['mission']}",
        f"you look {DIRECTIONS[int(observation['direction'])]} and carry {carried}",
        f"you see: {', '.join(text for _, text in sorted(seen)) or 'nothing'}",
        f"free steps forward: {free_steps(image, middle, last)}",
    )
    return "\n".join(lines)


def name_cell(cell: np.ndarray) -> str:
    """The object in a cell; "" where there is none to tell of."""
    what, colour, state = (int(x) for x in cell)
    name = OBJECTS[what] if what < len(OBJECTS) else ""
    if name in PASSED:
        return ""
    parts = (STATES[state] if name == "door" else "", COLOURS[colour] if name in COLOURED else "")
    return " ".join(filter(None, (*parts, name)))


def place(right: int, forward: int) -> str:
    """Where a cell lies, from the player: "2 forward 1 left"."""
    ways = (f"{forward} forward" if forward else "", sideways(right))
    return " ".join(filter(None, ways))


def sideways(right: int) -> str:
    return f"{abs(right)} {'right' if right > 0 else 'left'}" if right else ""


def free_steps(image: np.ndarray, middle: int, last: int) -> int:
    """Cells before the player, up to the first that it cannot enter or does not see. Lava can be entered,
    and ends the episode; it counts as no free step.
    """
    n = 0
    for row in range(last - 1, -1, -1):
        what, _, state = (int(x) for x in image[middle, row])
        name = OBJECTS[what] if what < len(OBJECTS) else ""
        if name not in ("empty", "floor", "goal") and not (name == "door" and state == 0):
            break
        n += 1
    return n
