"""Plans for `Pusher` and `Furniture` that a large model wrote once: what rmd-hoi runs on where nobody is asked."""

from collections.abc import Mapping
from typing import Any

import palaestra as pl
from palaestra.recipes.llm4rl.rmd_hoi.furniture import GOALS
from palaestra.recipes.llm4rl.rmd_hoi.plan import APPROACH, CONTACT, SEPARATE
from palaestra.recipes.llm4rl.rmd_hoi.pusher import TASKS


def edge(body: str, thing: str, trend: int) -> dict[str, Any]:
    return {"body": body, "object": thing, "trend": trend}


def both(thing: str, trend: int) -> list[dict[str, Any]]:
    return [edge(finger, thing, trend) for finger in ("left", "right")]


def at(part: str, place: str | list[float]) -> dict[str, Any]:
    return {"part": part, "place": place}


AWAY = [-0.5, -0.5]  # a place that is far from every button
PUSH: list[dict[str, Any]] = [
    {"edges": both("box", APPROACH), "body_target": at("left", "box")},
    {"edges": both("box", CONTACT), "object_target": at("box", "mat")},
]
PRESS: list[dict[str, Any]] = [
    {"edges": [edge("left", "button", APPROACH)], "body_target": at("left", "button")},
    {"edges": [edge("left", "button", CONTACT)]},
    {"edges": both("button", SEPARATE), "body_target": at("left", AWAY)},
    {"edges": [], "body_target": at("left", AWAY)},
]
PLANS: Mapping[str, list[dict[str, Any]]] = {
    "push": PUSH,
    "press": PRESS,
    "both": [*PUSH, *PRESS],
}


def fetched(thing: str, place: str | list[float]) -> list[dict[str, Any]]:
    """The left finger goes to a thing, and in contact brings it to a place."""
    return [
        {"edges": [edge("left", thing, APPROACH)], "body_target": at("left", thing)},
        {"edges": [edge("left", thing, CONTACT)], "object_target": at(thing, place)},
    ]


TOUCHED = [*PRESS[:2]]  # the button stays touched
ROOM: Mapping[str, list[dict[str, Any]]] = {
    "drawer": fetched("drawer", [-0.6, 0.3]),
    "door": fetched("door", [0.7, 0.3]),
    "cup": fetched("cup", "mat"),
    "button": TOUCHED,
}


def recorded(request: pl.ChatRequest) -> Mapping[str, Any]:
    """The plan of the task that the question names. A large model wrote them while this file was
    written, so it knew the simulator. Raises UserError for another question.
    """
    text = request.messages[0].content
    for wanted, task in sorted(TASKS.items(), key=lambda x: -len(x[1])):
        if task in text:
            return {"phases": PLANS[wanted]}
    for goal, task in GOALS.items():
        if f"The task: {task}" in text:
            return {"phases": ROOM[goal]}
    raise pl.UserError(
        "the recorded plans are those of the built-in tasks; name who is asked, --llm ..."
    )
