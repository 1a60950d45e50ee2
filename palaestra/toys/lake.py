"""T-lake: worlds of a small square board in which actions and things have made-up names, another
for every world. Nobody knows what they do until it was tried.

    user: use 0 5 6 9 / b2 7c1 8a3    assistant: 9    tool: b1 7c1 8a3    ...

Who plays is on b2, and the thing 7 lies on c1. On one of the two things the episode is won, on the
other it is lost. Of each world there are `boards` episodes, which share its names and differ in
where things are: what was found out in one helps in the next. Columns are letters from the left,
rows are numbers from the top, and names are digits that no row has. FrozenLake (gymnasium) with
renamed actions, without slipping.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, ClassVar

import numpy as np

from palaestra.declared import declare
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

SIDE, DIGITS = 3, "0456789"  # squares of a row; names


@value_class
class LakeState:
    at: Square
    goal: Square
    hole: Square
    names: Mapping[str, str]  # of the moves, and of "goal" and "hole"
    steps: tuple[tuple[Square, str, Square], ...] = ()  # from where, what was said, where to

    @property
    def result(self) -> str:
        """Whether it is "won" or "lost"; "" = neither yet."""
        return "won" if self.at == self.goal else "lost" if self.at == self.hole else ""

    def __str__(self) -> str:
        things = {self.names["goal"]: self.goal, self.names["hole"]: self.hole}
        things_text = (f"{name}{square_name(things[name])}" for name in sorted(things))
        return " ".join((square_name(self.at), *things_text))


def square_name(cell: Square) -> str:
    """A square as it is shown: b2 is the second from the left in the second row."""
    return f"{chr(97 + cell[0])}{cell[1] + 1}"


@declare(columns=(("world", str, "the names of directions and things that hold in it"), "start"))
@stage
class LakeTasks:
    """Task number i is episode i % `boards` of world i // `boards`. A task's meta: "world", the id
    of its world, and "start".

    Args:
        boards: episodes of a world.
    """

    boards: int = 10
    name: str = "lake"
    size: int | None = None

    def __post_init__(self) -> None:
        need_at_least(self, boards=1)

    def task(self, split: str, index: int) -> Task:
        world = f"{self.name}/{split}/world {index // self.boards}"
        digits = rng_of((repr(self), world)).permutation(list(DIGITS))
        names = dict(zip((*MOVES, "goal", "hole"), map(str, digits), strict=False))
        return draw_task(self, split, index, lambda rng: self._draw(rng, world, names))

    def _draw(self, rng: np.random.Generator, world: str, names: Mapping[str, str]) -> Task:
        cells = rng.choice(SIDE**2, 3, replace=False)
        at, goal, hole = ((int(c) % SIDE, int(c) // SIDE) for c in cells)
        start = LakeState(at=at, goal=goal, hole=hole, names=names)
        actions = " ".join(sorted(names[move] for move in MOVES))
        meta = {"world": world, "start": start}
        return question_task(self.name, f"use {actions}\n{start}", None, meta)


@declare(
    facts=(
        "turns",
        ("steps", tuple, "(square before, action, square after) of each turn"),
        "executed",
        "invalid",
        "result",
        ("thing", str, "the thing that it walked onto"),
        "correct",
    ),
    reads_columns=("start",),
)
@stage
class Lake:
    """Pays 1 on the goal; the last digit that is said is the action. One without a meaning, and
    one into a wall, costs a turn and changes nothing.

    Facts: "steps", (from, action, to) with the names of squares; "result", "won", "lost" or "";
    "thing", the name of what it ended on; "invalid", how many actions had no meaning.
    """

    turns: int = 6
    seats: tuple[str, ...] = ("policy",)
    solved: ClassVar[float] = 1.0
    bounds: ClassVar[tuple[float, float]] = (0.0, 1.0)

    def reset(self, task: Task, key: Key) -> Frame:
        return self._ask(task.meta["start"], task.prompt)

    def step(self, state: LakeState, acts: tuple[Act, ...], key: Key) -> Frame:
        action = next((c for c in reversed(acts[0].text) if c in DIGITS), "")
        state = replace(state, steps=(*state.steps, (state.at, action, moved(state, action))))
        state = replace(state, at=state.steps[-1][2])
        if state.result or len(state.steps) >= self.turns:
            pay = {("policy", ""): float(state.result == "won")}
            status = "finished" if state.result else "truncated:turns"
            facts, state_text = lake_facts(state), str(state)
            return Frame(state=state, pay=pay, facts=facts, state_key=state_text, status=status)
        return self._ask(state, (Message(role="tool", content=str(state)),))

    def oracle(self, state: LakeState) -> str:
        """The name of an action of a shortest way."""
        return state.names[way_to(state, state.goal, state.hole)]

    def _ask(self, state: LakeState, say: tuple[Message, ...]) -> Frame:
        ask = Ask(seat="policy", say=say)
        return Frame(state=state, asks=(ask,), facts=lake_facts(state), state_key=str(state))


def moved(state: LakeState, action: str) -> Square:
    """Where an action leads."""
    move = next((m for m in MOVES if state.names[m] == action), None)
    if move is None:
        return state.at
    (x, y), (dx, dy) = state.at, MOVES[move]
    to = (x + dx, y + dy)
    return to if min(to) >= 0 and max(to) < SIDE else state.at


def way_to(state: LakeState, target: Square, around: Square) -> str:
    """The first move of a shortest way, columns first, that does not touch `around`."""
    firsts, todo = {state.at: ""}, [state.at]
    for at in todo:  # grows: breadth first
        for move in ("left", "right", "up", "down"):
            to = (at[0] + MOVES[move][0], at[1] + MOVES[move][1])
            if min(to) >= 0 and max(to) < SIDE and to != around and to not in firsts:
                firsts[to] = firsts[at] or move
                todo.append(to)
    return firsts[target]  # one square in the way parts no board of three rows


def lake_facts(state: LakeState) -> dict[str, Any]:
    ends, actions = {"won": "goal", "lost": "hole"}, [state.names[move] for move in MOVES]
    return {
        "turns": len(state.steps),
        "steps": tuple((square_name(a), text, square_name(b)) for a, text, b in state.steps),
        "executed": tuple(a != b for a, _, b in state.steps),
        "invalid": sum(text not in actions for _, text, _ in state.steps),
        "result": state.result,
        "thing": state.names[ends[state.result]] if state.result else "",
        "correct": state.result == "won",
    }
