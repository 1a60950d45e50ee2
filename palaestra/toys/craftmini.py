"""T-craftmini: a small board with trees, water and stone, in which tools are made, as in Craftax.

    user: up grass down tree left wall right water, facing tree, wood 0    do    tool: ..., wood 1    table

Who plays sees the four squares around, what is faced, and what is held. A move into a thing faces it, `do`
takes what is faced: wood of a tree, water, with a pickaxe stone. `table` puts one where grass is faced and
takes a wood; `pickaxe` is made beside a table out of one.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import field, replace
from typing import Any, ClassVar

import numpy as np

from palaestra.declared import declare
from palaestra.errors import UserError
from palaestra.tasks.procedural import draw_task, question_task
from palaestra.toys.grid import MOVES, Square
from palaestra.types import (
    Act,
    Ask,
    Frame,
    Key,
    Message,
    Task,
    need_at_least,
    rng_of,
    stage,
    value_class,
)

ACTIONS = (*MOVES, "do", "table", "pickaxe")
ACHIEVEMENTS = ("drink water", "collect wood", "place table", "make pickaxe", "collect stone")
REDRAWS = 1000


@value_class
class CraftState:
    side: int
    at: Square
    things: Mapping[Square, str]  # "tree", "water", "stone" or "table"
    facing: str = "down"
    held: Mapping[str, int] = field(default_factory=dict)  # wood, stone, pickaxe
    achieved: tuple[str, ...] = ()
    turns: int = 0

    @property
    def front(self) -> Square:
        """The square that is faced, which may lie beyond the edge."""
        return beside(self.at, self.facing)

    def seen(self, cell: Square) -> str:
        inside = min(cell) >= 0 and max(cell) < self.side
        return self.things.get(cell, "grass") if inside else "wall"

    def __str__(self) -> str:
        around = " ".join(f"{d} {self.seen(beside(self.at, d))}" for d in MOVES)
        held = "".join(f", {name} {n}" for name, n in sorted(self.held.items()) if n)
        return f"{around}, facing {self.seen(self.front)}{held}"


def beside(cell: Square, direction: str) -> Square:
    return (cell[0] + MOVES[direction][0], cell[1] + MOVES[direction][1])


def craft(state: CraftState, action: str) -> CraftState | None:
    """The state after an action, None if it is impossible."""
    if action in MOVES:
        turned = replace(state, facing=action)
        return replace(turned, at=turned.front) if turned.seen(turned.front) == "grass" else turned
    front, held = state.seen(state.front), dict(state.held)
    if action == "table" and front == "grass" and held.get("wood"):
        held["wood"] -= 1
        things = {**state.things, state.front: "table"}
        return gain(replace(state, held=held, things=things), "place table")
    near = [state.seen(beside(state.at, d)) for d in MOVES]
    if action == "pickaxe" and "table" in near and held.get("wood"):
        held |= {"wood": held["wood"] - 1, "pickaxe": 1}
        return gain(replace(state, held=held), "make pickaxe")
    if action == "do" and front == "water":
        return gain(state, "drink water")
    if action == "do" and front == "tree":
        return gain(replace(state, held={**held, "wood": held.get("wood", 0) + 1}), "collect wood")
    if action == "do" and front == "stone" and held.get("pickaxe"):
        things = {cell: x for cell, x in state.things.items() if cell != state.front}
        more = {**held, "stone": held.get("stone", 0) + 1}
        return gain(replace(state, held=more, things=things), "collect stone")
    return None


def gain(state: CraftState, name: str) -> CraftState:
    """The state in which something is achieved, once."""
    known = state.achieved
    return state if name in known else replace(state, achieved=(*known, name))


def plan(state: CraftState) -> str:
    """The next action of a way to all achievements, the nearest thing first."""
    if "place table" in state.achieved and "make pickaxe" not in state.achieved:
        wanted = "table" if state.held.get("wood") else "tree"
    elif "place table" not in state.achieved:
        wanted = "tree" if state.held.get("wood", 0) < 2 else "grass"
    else:
        wanted = "stone"
    if "drink water" not in state.achieved and "water" in state.seen(state.front):
        return "do"
    if wanted == "table" and "table" in [state.seen(beside(state.at, d)) for d in MOVES]:
        return "pickaxe"
    if state.seen(state.front) == wanted:
        return "table" if wanted == "grass" else "do"
    if "collect stone" in state.achieved:
        wanted = "water"
    return way_to_thing(state, wanted)


def way_to_thing(state: CraftState, wanted: str) -> str:
    """The first move of a shortest way to a square beside such a thing, or into it."""
    firsts, todo = {state.at: ""}, [state.at]
    for at in todo:  # grows: breadth first
        for move in MOVES:
            cell = beside(at, move)
            if state.seen(cell) == wanted and (wanted != "grass" or at != state.at):
                return firsts[at] or move
            if state.seen(cell) == "grass" and cell not in firsts:
                firsts[cell] = firsts[at] or move
                todo.append(cell)
    return "do"


def actions_of_plan(state: CraftState, most: int) -> Iterator[str]:
    """The actions that achieve everything, at most so many."""
    for _ in range(most):
        if len(state.achieved) == len(ACHIEVEMENTS):
            return
        action = plan(state)
        yield action
        state = craft(state, action) or state


@declare(columns=("start",))
@stage
class CraftMiniTasks:
    """Boards of `side` rows on which all can be achieved in `steps` actions."""

    side: int = 4
    steps: int = 12
    name: str = "craftmini"
    size: int | None = None

    def __post_init__(self) -> None:
        need_at_least(self, side=3, steps=10)

    def task(self, split: str, index: int) -> Task:
        return draw_task(self, split, index, self._draw)

    def _draw(self, rng: np.random.Generator) -> Task:
        kinds = ("tree", "tree", "water", "stone", "stone")
        for _ in range(REDRAWS):
            cells = rng.choice(self.side**2, 1 + len(kinds), replace=False)
            at, *others = ((int(c) % self.side, int(c) // self.side) for c in cells)
            start = CraftState(side=self.side, at=at, things=dict(zip(others, kinds, strict=True)))
            last = start
            for action in actions_of_plan(start, self.steps):
                last = craft(last, action) or last
            if len(last.achieved) == len(ACHIEVEMENTS):
                board = " ".join(f"{x}{c}{r}" for (c, r), x in sorted(last.things.items()))
                meta = {"start": start, "board": board}
                return question_task(self.name, str(start), None, meta)
        raise UserError(f"CraftMiniTasks: no board can be solved in {self.steps} steps; take more")


@declare(
    facts=(
        "turns",
        "invalid",
        ("achievements", tuple, "names of what was achieved, in order"),
        ("achievement_names", tuple, "names of all that can be achieved"),
    ),
    reads_columns=("start",),
)
@stage
class CraftMini:
    """Pays the share of the achievements at the end. An impossible action costs a turn; with `legal`
    only the names of actions can be said.

    Args:
        wander: the share of the oracle's actions that are drawn at random, for demonstrations of somebody who
            tries things out.
    """

    turns: int = 12
    legal: bool = True
    wander: float = 0.0
    seats: tuple[str, ...] = ("policy",)
    solved: ClassVar[float] = 1.0
    bounds: ClassVar[tuple[float, float]] = (0.0, 1.0)

    def reset(self, task: Task, key: Key) -> Frame:
        return self._ask(task.meta["start"], task.prompt, 0)

    def step(self, state: CraftState, acts: tuple[Act, ...], key: Key) -> Frame:
        after = craft(state, acts[0].text.strip())
        invalid = int(after is None)
        state = replace(after or state, turns=state.turns + 1)
        whole = len(state.achieved) == len(ACHIEVEMENTS)
        if whole or state.turns >= self.turns:
            pay = {("policy", ""): len(state.achieved) / len(ACHIEVEMENTS)}
            facts = craft_facts(state, invalid)
            return Frame(state=state, pay=pay, facts=facts, state_key=str(state))
        return self._ask(state, (Message(role="tool", content=str(state)),), invalid)

    def oracle(self, state: CraftState) -> str:
        """The next action of a plan that achieves all, on the boards of `CraftMiniTasks`."""
        rng = rng_of(("wander", str(sorted(state.things.items())), str(state), state.turns))
        at_random = self.wander and rng.random() < self.wander
        return ACTIONS[int(rng.integers(len(ACTIONS)))] if at_random else plan(state)

    def _ask(self, state: CraftState, say: tuple[Message, ...], invalid: int) -> Frame:
        ask = Ask(seat="policy", say=say, choices=ACTIONS if self.legal else None)
        facts = craft_facts(state, invalid)
        return Frame(state=state, asks=(ask,), facts=facts, state_key=str(state))


def craft_facts(state: CraftState, invalid: int) -> dict[str, Any]:
    return {
        "turns": state.turns,
        "invalid": invalid,
        "achievements": state.achieved,
        "achievement_names": ACHIEVEMENTS,
    }
