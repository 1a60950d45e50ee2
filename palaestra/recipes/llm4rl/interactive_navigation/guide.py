"""A script in the place of a language model, for the default's rooms alone. It reads a question as a
model would, knows the rules of the rooms, and of what is hidden nothing.
"""

import re
from collections.abc import Mapping, Sequence
from typing import Any

import palaestra as pl
from palaestra.recipes.llm4rl.interactive_navigation.rooms import (
    HEIGHT,
    WALL,
    WIDTH,
    BlockedRooms,
    BlockedRoomsView,
    Cell,
    Placed,
)
from palaestra.recipes.llm4rl.interactive_navigation.tree import checked_call

ROUGH = {"push": 4.0, "climb": 2.0}  # beside the way, as the crow flies; of others 1
MORE = 10.0  # added to the cost of a call that failed
WORLD = BlockedRooms()
PLACED = re.compile(r"([a-z]+ ?\d*) at (\d+),(\d+)")


def scripted_navigator(request: pl.ChatRequest) -> Mapping[str, Any]:
    """The reply of a planner, an advisor or an arborist. Raises UserError for a question about another
    world.
    """
    text = request.messages[0].content
    if not text.startswith(WORLD.about):
        raise pl.UserError(
            "interactive-navigation: the script knows the default's rooms alone; name who is asked, "
            "--llm endpoint(url='...',model='...')"
        )
    if "Should it continue" in text:
        return _advise(text)
    if "Edit the tree" in text:
        return {"edits": _edits(text)}
    view, failed = read_view(text), _failed(text)
    if "Write one plan" in text:
        plans = [_spelled(view, chain) for chain in _chains(view, failed)]
        return {"plan": min(plans, key=lambda p: sum(call["cost"] for call in p), default=[])}
    return {"nodes": _nodes(view, failed, re.findall(r"node (\d+): after (.*)", text))}


def read_view(text: str) -> BlockedRoomsView:
    """What a question tells of the rooms, as `BlockedRooms.spell` wrote it."""
    rows = re.findall(rf"(?m)^[#.RGBkDL?]{{{WIDTH}}}$", text)[:HEIGHT]
    line = lambda name: next(x for x in text.split("\n") if name in x)
    placed = lambda part: tuple((n, (int(x), int(y))) for n, x, y in PLACED.findall(part))
    boxes, ledges = line("boxes: ").split("; ledges")
    keys, held, doors = line("keys: ").split(";")
    robot, goal = (cell for _, cell in placed(line("(column,row)")))
    need = re.findall(r"(door \d+) at (\d+),(\d+) needs (key \d+)", doors)
    return BlockedRoomsView(
        robot=robot,
        goal=goal,
        walls=frozenset(
            (x, y) for y, row in enumerate(rows) for x, c in enumerate(row) if c == "#"
        ),
        boxes=placed(boxes),
        keys=placed(keys),
        held=tuple(re.findall(r"key \d+", held)),
        doors=tuple((n, (int(x), int(y)), k) for n, x, y, k in need),
        ledges=placed(ledges),
        unseen=tuple(cell for _, cell in placed(line("unseen: "))),
    )


Chain = list[tuple[str, list[str]]]


def _failed(text: str) -> set[str]:
    line = re.search(r"Failed before, so do not name it: (.*)", text)
    return set(re.findall(r"\w+\([^)]*\)", line[1])) if line else set()


def _west(cell: Cell, placed: Placed, away: int) -> str:
    """The thing some cells west of a cell; "" = none."""
    return next((n for n, c in placed if c == (cell[0] - away, cell[1])), "")


def _chains(view: BlockedRoomsView, failed: set[str]) -> list[Chain]:
    """Ways to the goal: along free cells, and through each passage, without calls that failed."""
    walk: Chain = [("walk", ["goal"])]
    chains: list[Chain] = [walk]
    for box, cell in view.boxes:
        if cell[0] == WALL:
            chains.append([("push", [box, "east"]), *walk])
    for door, _, key in view.doors:
        known = key in view.held or key in dict(view.keys)
        take: Chain = [] if key in view.held else [("take", [key])]
        if known:
            chains.append([*take, ("open", [door]), *walk])
    for ledge, cell in view.ledges:
        step, there = _west(cell, view.boxes, 3), _west(cell, view.boxes, 1)
        if step or there:
            push: Chain = [] if there else [("push", [step, "east"])]
            chains.append([*push, ("climb", [ledge]), *walk])
    works = [c for c in chains if _works(view, c, failed)]
    explore: Chain = [("explore", [])]
    return works or ([explore] if _works(view, explore, failed) else [])


def _works(view: BlockedRoomsView, chain: Chain, failed: set[str]) -> bool:
    for name, arguments in chain:
        if f"{name}({', '.join(arguments)})" in failed:
            return False
        try:
            call = checked_call(WORLD, view, name, arguments)
        except ValueError:
            return False
        view = WORLD.predict(view, call.name, call.arguments)
    return True


def _spelled(view: BlockedRoomsView, chain: Chain) -> list[dict[str, Any]]:
    """The calls of a chain with rough costs: walls between two places are not counted."""
    actions = list[dict[str, Any]]()
    for name, arguments in chain:
        after = WORLD.predict(view, name, tuple(arguments))
        way = sum(abs(a - b) for a, b in zip(view.robot, after.robot, strict=True))
        cost = way + ROUGH.get(name, 1.0)
        actions.append(
            {"do": name, "arguments": arguments, "cost": cost, "reason": "a way through"}
        )
        view = after
    return actions


def _nodes(
    view: BlockedRoomsView, failed: set[str], wanting: Sequence[tuple[str, str]]
) -> list[dict[str, Any]]:
    """Up to three chains behind each node that wants children."""
    nodes = list[dict[str, Any]]()
    for number, path in wanting:
        there = view
        for name, arguments in re.findall(r"(\w+)\(([^)]*)\)", path):
            given = tuple(a for a in arguments.split(", ") if a)
            there = WORLD.predict(there, name, given)
        for k, chain in enumerate(_chains(there, failed)[:3]):
            under = number
            for j, call in enumerate(_spelled(there, chain)):
                name = f"{number}-{k}-{j}"
                nodes.append({"name": name, "under": under, **call})
                under = name
    return nodes


def _advise(text: str) -> dict[str, Any]:
    """Repair after a failure, or where no plan is left; else continue."""
    event, plan = (
        next(x for x in text.split("\n") if x.startswith(w))
        for w in ("What happened", "A robot follows")
    )
    node = re.search(r"node (\d+)", event)
    wrong = "failed" in event or "none that reaches" in plan
    return {"advice": "repair" if wrong else "continue", "node": node[1] if node else "0"}


def _edits(text: str) -> list[dict[str, Any]]:
    """The call that failed costs 10 more where another plan reaches the goal; else it is pruned, and
    what can be done from here is added.
    """
    event = next(x for x in text.split("\n") if x.startswith("What happened"))
    wrong = re.search(r"node (\d+) [^;]* failed", event)
    lines = {n: (p, c, rest) for n, p, c, rest in re.findall(
        r"(?m)^node (\d+) under (\d+): .*?, cost ([\d.]+)(.*)$", text)}  # fmt: skip

    def above(number: str) -> list[str]:
        return [number, *(above(lines[number][0]) if number in lines else [])]

    ends = [n for n, (_, _, rest) in lines.items() if "reaches the goal" in rest]
    bad = wrong[1] if wrong else ""
    if bad in lines and any(bad not in above(n) for n in ends):
        return [{"edit": "recost", "node": bad, "cost": float(lines[bad][1]) + MORE}]
    edits: list[dict[str, Any]] = [{"edit": "prune", "node": bad}] if bad in lines else []
    for node in _nodes(read_view(text), _failed(text), [("0", "")]):
        if node["do"] != "explore":
            edits.append({"edit": "add", "node": node.pop("under"), **node})
    return edits
