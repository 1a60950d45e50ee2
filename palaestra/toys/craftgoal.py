"""T-craftgoal: one thing is to be done on a small board of crafts, of one to four stages.

    user: goal: place table
          up grass down tree left wall right water, facing tree    do    tool: ..., wood 1    table

The rules are those of `craftmini`. Depth 1 is to drink water or collect wood, 2 to place a table, 3 to
make a pickaxe, 4 to collect stone; a plan takes 1 to 12 actions. Who does it is paid 1, who has not done
it after `turns` actions 0, and nothing is paid on the way.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import ClassVar

import numpy as np

from palaestra.declared import declare
from palaestra.errors import UserError
from palaestra.tasks.procedural import draw_task, question_task
from palaestra.toys.craftmini import (
    ACTIONS,
    REDRAWS,
    CraftState,
    craft,
    craft_facts,
    plan,
    way_to_thing,
)
from palaestra.types import Act, Ask, Frame, Key, Message, Task, need_at_least, stage, value_class

DEPTHS: Mapping[str, int] = {
    "drink water": 1,
    "collect wood": 1,
    "place table": 2,
    "make pickaxe": 3,
    "collect stone": 4,
}


@value_class
class CraftGoalState:
    board: CraftState
    goal: str

    def __str__(self) -> str:
        return str(self.board)

    @property
    def reached(self) -> bool:
        return self.goal in self.board.achieved


def plan_of_goal(state: CraftGoalState) -> str:
    """The next action of a way to the goal."""
    board = state.board
    if state.goal == "drink water":
        return "do" if board.seen(board.front) == "water" else way_to_thing(board, "water")
    return plan(replace(board, achieved=(*board.achieved, "drink water")))


def actions_to_goal(state: CraftGoalState, most: int) -> Iterator[str]:
    """The actions of the plan until the goal is reached, at most so many."""
    for _ in range(most):
        if state.reached:
            return
        action = plan_of_goal(state)
        yield action
        state = replace(state, board=craft(state.board, action) or state.board)


@declare(
    columns=(
        "start",
        ("goal", str, "what is to be done"),
        ("plan_length", int, "actions of a plan"),
    )
)
@stage
class CraftGoalTasks:
    """Goals of each depth alike, on boards of `side` rows on which a plan takes at most `steps` actions.
    The domain of a task is its depth.
    """

    side: int = 4
    steps: int = 12
    depths: tuple[int, ...] = (1, 2, 3, 4)
    name: str = "craftgoal"
    size: int | None = None

    def __post_init__(self) -> None:
        need_at_least(self, side=3, steps=1)
        if not self.depths or not set(self.depths) <= set(DEPTHS.values()):
            raise UserError(f"CraftGoalTasks: depths={self.depths}; take some of 1, 2, 3, 4")

    def task(self, split: str, index: int) -> Task:
        return draw_task(self, split, index, self._draw)

    def _draw(self, rng: np.random.Generator) -> Task:
        depth = int(rng.choice(self.depths))
        goal = str(rng.choice([g for g, d in DEPTHS.items() if d == depth]))
        kinds = ("tree", "tree", "water", "stone", "stone")
        for _ in range(REDRAWS):
            cells = rng.choice(self.side**2, 1 + len(kinds), replace=False)
            at, *others = ((int(c) % self.side, int(c) // self.side) for c in cells)
            board = CraftState(side=self.side, at=at, things=dict(zip(others, kinds, strict=True)))
            last, taken = CraftGoalState(board=board, goal=goal), 0
            for action in actions_to_goal(last, self.steps):
                last = replace(last, board=craft(last.board, action) or last.board)
                taken += 1
            if last.reached:
                start = CraftGoalState(board=board, goal=goal)
                map_ = " ".join(f"{x}{c}{r}" for (c, r), x in sorted(board.things.items()))
                meta = {"start": start, "goal": goal, "plan_length": taken, "board": map_}
                task = question_task(self.name, f"goal: {goal}\n{board}", None, meta)
                return replace(task, domain=f"depth {depth}")
        raise UserError(f"CraftGoalTasks: no board can be solved in {self.steps} steps; take more")


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
class CraftGoal:
    """Pays 1 where the goal is reached, and 0 after `turns` actions without. An impossible action costs a
    turn; with `legal` only the names of actions can be said.
    """

    turns: int = 12
    legal: bool = True
    seats: tuple[str, ...] = ("policy",)
    solved: ClassVar[float] = 1.0
    bounds: ClassVar[tuple[float, float]] = (0.0, 1.0)

    def __post_init__(self) -> None:
        need_at_least(self, turns=1)

    def reset(self, task: Task, key: Key) -> Frame:
        return self._ask(task.meta["start"], task.prompt, 0)

    def step(self, state: CraftGoalState, acts: tuple[Act, ...], key: Key) -> Frame:
        after = craft(state.board, acts[0].text.strip())
        board = replace(after or state.board, turns=state.board.turns + 1)
        state, invalid = replace(state, board=board), int(after is None)
        if state.reached or board.turns >= self.turns:
            pay = {("policy", ""): float(state.reached)}
            return Frame(
                state=state, pay=pay, facts=craft_facts(board, invalid), state_key=str(state)
            )
        return self._ask(state, (Message(role="tool", content=str(board)),), invalid)

    def oracle(self, state: CraftGoalState) -> str:
        """The next action of a plan."""
        return plan_of_goal(state)

    def _ask(self, state: CraftGoalState, say: tuple[Message, ...], invalid: int) -> Frame:
        ask = Ask(seat="policy", say=say, choices=ACTIONS if self.legal else None)
        facts = craft_facts(state.board, invalid)
        return Frame(state=state, asks=(ask,), facts=facts, state_key=str(state))
