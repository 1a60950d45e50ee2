"""Stages and rewards for `LidTask` that a large model wrote once: what robohorizon runs on where nobody
is asked.
"""

from collections.abc import Mapping
from typing import Any

import palaestra as pl


def op(name: str, *args: Any) -> dict[str, Any]:
    return {"op": name, "args": list(args)}


def both(*conditions: Any) -> Any:
    return op("multiply", *conditions)


def near(distance: str, weight: float = -2.0) -> dict[str, Any]:
    """exp(weight * distance)"""
    return op("exp", op("multiply", weight, distance))


OPEN_ANGLE = op("less", 1.2, "lid_angle")
STAGES: list[dict[str, Any]] = [
    {"name": "hold the handle", "done": both(op("less", "handle_distance", 0.15), "gripping")},
    {"name": "open the lid", "done": OPEN_ANGLE},
    {"name": "hold the item", "done": both(op("less", "item_distance", 0.15), "gripping")},
    {"name": "bring the item into the box", "done": op("less", "box_distance", 0.2)},
]
TURN = op("multiply", 2.0, op("exp", op("neg", op("abs", op("subtract", "lid_angle", 1.5708)))))
HOLD = op("multiply", 0.2, "gripping")
REWARDS: list[dict[str, Any]] = [
    {"step": op("add", near("handle_distance"), HOLD), "bonus": 2.0},
    {"step": op("add", TURN, near("handle_distance")), "bonus": 5.0},
    {"step": op("add", near("item_distance"), HOLD), "bonus": 2.0},
    {"step": op("add", near("item_distance"), near("box_distance")), "bonus": 5.0},
]
# the last step's progress as the paper's example has it, 1 + (1 - exp(-d)), which falls on the way
PROGRESS = op("add", 1.0, op("subtract", 1.0, op("exp", op("neg", "box_distance"))))
FIRST = [*REWARDS[:3], {"step": PROGRESS, "bonus": 5.0}]


def recorded(request: pl.ChatRequest) -> Mapping[str, Any]:
    """The stages, and rewards of them: at first with the sign error of the paper's printed example, and
    without it when the lint has complained. A large model wrote both while this file was written, so it
    knew the simulator.
    """
    text = request.messages[0].content
    if "Stages:" not in text:
        return {"stages": STAGES}
    return {"rewards": REWARDS if "was refused" in text else FIRST}
