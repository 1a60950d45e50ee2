"""System 2 of dsadf where nobody is asked: rules that a large model wrote."""

import re
from typing import Any

import palaestra as pl

PLACES = {"sink": (1, 1), "desk": (3, 3), "bed": (7, 1), "shelf": (5, 3)}
HANDS = {"cup": 1, "book": 2}
DOOR = (4, 2)


def written_answer(request: pl.ChatRequest) -> dict[str, Any]:
    """A plan or an action by words and numbers of the question. A large model wrote the rules while this
    file was written: it knew the house and its errands, and they reach every goal by a shortest way.
    """
    text = request.messages[0].content
    if task := re.search(r"^The task: (.*)$", text, re.M):
        return {"plan": written_plan(task[1])}
    goal = re.search(r"^The goal: (.*)$", text, re.M)
    numbers = {n: float(x) for n, x in re.findall(r"^- (\w+) = (\S+) ", text, re.M)}
    if goal is None or not {"x", "y", "hands"} <= set(numbers):
        raise pl.UserError(
            "without a model that is asked, dsadf does errands in its own house alone"
        )
    return {"action": written_action(goal[1], {k: int(v) for k, v in numbers.items()})}


def written_plan(task: str) -> list[str]:
    thing = next((t for t in HANDS if t in task), "")
    place = next((p for p in PLACES if p in task), "")
    if task.startswith(("go ", "take ", "put ")):
        return [task]
    last = f"go to the {place}" if task.startswith("read") else f"put the {thing} on the {place}"
    return [f"take the {thing}", last]


def written_action(goal: str, seen: dict[str, int]) -> str:
    here = (seen["x"], seen["y"])
    thing = next((t for t in HANDS if t in goal), "")
    place = next((PLACES[p] for p in PLACES if p in goal), here)
    if goal.startswith("go "):
        return walk(here, place)
    lies = (seen[f"{thing}_x"], seen[f"{thing}_y"])
    if seen["hands"] == HANDS[thing]:
        return "put" if here == place else walk(here, place)
    if seen["hands"]:  # with the other thing in the hands
        return walk(here, (2, 2) if here != (2, 2) else (3, 2)) if here == lies else "put"
    return "take" if here == lies else walk(here, lies)


def walk(here: tuple[int, int], to: tuple[int, int]) -> str:
    """Between the rooms along the row of the door, (4, 2); within a room by columns first."""
    through = here[0] != to[0] and (here[0] - DOOR[0]) * (to[0] - DOOR[0]) <= 0
    if here[0] == to[0] or (through and here[1] != DOOR[1]):
        row = DOOR[1] if through else to[1]
        return "down" if row > here[1] else "up" if row < here[1] else "put"
    return "right" if to[0] > here[0] else "left"
