"""T-grid: carry the box to the goal on a small square grid, one word an action.

    user: at b2, box c1, goal a3    up    tool: at b1, box c1, goal a3    right    ...    pick    ...    drop

Columns are letters from the left, rows are numbers from the top.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any, ClassVar, Literal

import numpy as np

from palaestra.declared import declare
from palaestra.tasks.procedural import draw_task, question_task
from palaestra.types import Act, Ask, Frame, Key, Message, Task, stage, value_class

Square = tuple[int, int]  # column, row
MOVES = {"up": (0, -1), "down": (0, 1), "left": (-1, 0), "right": (1, 0)}
ACTIONS = (*MOVES, "pick", "drop")


@value_class
class GridState:
    size: int
    at: Square
    box: Square
    goal: Square
    holding: bool = False
    done: bool = False
    executed: tuple[bool, ...] = ()  # whether each action was possible
    closer: tuple[int, ...] = ()  # by how much each action shortened the way

    @property
    def turns(self) -> int:
        return len(self.executed)

    @property
    def distance(self) -> int:
        """Actions that the shortest way still takes."""
        if self.done:
            return 0
        if self.holding:
            return _distance(self.at, self.goal) + 1
        return _distance(self.at, self.box) + 1 + _distance(self.box, self.goal) + 1

    def __str__(self) -> str:
        held = " with box, " if self.holding else f", box {_square_name(self.box)}, "
        return f"at {_square_name(self.at)}{held}goal {_square_name(self.goal)}"


def _distance(a: Square, b: Square) -> int:
    return abs(a[0] - b[0]) + abs(a[1] - b[1])


def _square_name(cell: Square) -> str:
    return f"{chr(97 + cell[0])}{cell[1] + 1}"


@declare(columns=("start",))
@stage
class GridTasks:
    """Problems that can be solved in `steps` actions; `side` 3 needs at most 10."""

    side: int = 3
    steps: int = 12
    name: str = "grid"
    size: int | None = None

    def task(self, split: str, index: int) -> Task:
        return draw_task(self, split, index, self._draw)

    def _draw(self, rng: np.random.Generator) -> Task:
        while True:
            at, box, goal = ((int(x), int(y)) for x, y in rng.integers(0, self.side, (3, 2)))
            start = GridState(size=self.side, at=at, box=box, goal=goal)
            if box != goal and start.distance <= self.steps:
                return question_task(self.name, str(start), start.distance, {"start": start})


@declare(
    facts=(
        "turns",
        "invalid",
        "executed",
        ("closer", tuple, "by turn, how much nearer it came to the goal"),
        ("distance", int, "steps to the goal from where it ended"),
        "correct",
    ),
    reads_columns=("start",),
)
@stage
class Grid:
    """Pays 1 when the box is dropped on the goal. An impossible action costs a turn ("stay") or
    ends unpaid ("end"); with `legal` there is none, since only possible ones can be said.
    """

    turns: int = 12
    invalid: Literal["stay", "end"] = "stay"
    seats: tuple[str, ...] = ("policy",)
    legal: bool = False
    solved: ClassVar[float] = 1.0

    def reset(self, task: Task, key: Key) -> Frame:
        return self._ask(task.meta["start"], task.prompt)

    def step(self, state: GridState, acts: tuple[Act, ...], key: Key) -> Frame:
        after = apply_action(state, acts[0].text.strip())
        possible = after is not None
        closer = 0 if after is None else state.distance - after.distance
        state = replace(
            state if after is None else after,
            executed=(*state.executed, possible),
            closer=(*state.closer, closer),
        )
        if state.done or (not possible and self.invalid == "end"):
            return self._end(state, "finished")
        if state.turns >= self.turns:
            return self._end(state, "truncated:turns")
        return self._ask(
            state, (Message(role="tool", content=str(state) if possible else f"cannot, {state}"),)
        )

    def oracle(self, state: GridState) -> str:
        """An action of a shortest way: columns first."""
        target = state.goal if state.holding else state.box
        if state.at == target:
            return "drop" if state.holding else "pick"
        (x, y), (u, v) = state.at, target
        return ("right" if u > x else "left") if u != x else ("down" if v > y else "up")

    def _ask(self, state: GridState, say: tuple[Message, ...]) -> Frame:
        choices = tuple(a for a in ACTIONS if apply_action(state, a)) if self.legal else None
        return Frame(
            state=state,
            asks=(Ask(seat="policy", say=say, choices=choices),),
            facts=_facts(state),
            state_key=str(state),
        )

    def _end(self, state: GridState, status: str) -> Frame:
        pay = {("policy", ""): float(state.done)}
        return Frame(state=state, pay=pay, facts=_facts(state), state_key=str(state), status=status)


def apply_action(state: GridState, action: str) -> GridState | None:
    """The state after an action, None if it is impossible."""
    if action in MOVES:
        at = (state.at[0] + MOVES[action][0], state.at[1] + MOVES[action][1])
        return replace(state, at=at) if max(at) < state.size and min(at) >= 0 else None
    if action == "pick" and not state.holding and state.at == state.box:
        return replace(state, holding=True)
    if action == "drop" and state.holding:
        return replace(state, holding=False, box=state.at, done=state.at == state.goal)
    return None


def _facts(state: GridState) -> dict[str, Any]:
    return {
        "turns": state.turns,
        "invalid": state.executed.count(False),
        "executed": state.executed,
        "closer": state.closer,
        "distance": state.distance,
        "correct": state.done,
    }
