"""Subgoals for the default's three mazes that a large model wrote once: what ldsc runs on where nobody is
asked.
"""

from collections.abc import Mapping
from typing import Any

import palaestra as pl


def subgoal(name: str, x: int, y: int, after: str = "") -> dict[str, Any]:
    return {"name": name, "x": x, "y": y, "radius": 0.5, "after": after}


EAST, SOUTH = subgoal("east door", 5, 3), subgoal("south-east door", 7, 5, "east door")
WRITTEN: Mapping[str, list[dict[str, Any]]] = {
    "(9, 1)": [EAST, subgoal("corner of the north-east room", 9, 1, "east door")],
    "(9, 9)": [EAST, SOUTH, subgoal("corner of the south-east room", 9, 9, "south-east door")],
    "(6, 9)": [EAST, SOUTH, subgoal("west end of the south-east room", 6, 9, "south-east door")],
}


def recorded_subgoals(request: pl.ChatRequest) -> Mapping[str, Any]:
    """The subgoals of the question's goal. A large model wrote them while this file was written, so it
    knew the mazes.
    """
    text = request.messages[0].content
    goal = next(goal for goal in WRITTEN if f"to the goal {goal}" in text)
    return {"subgoals": WRITTEN[goal]}
