"""A maze from a drawing, n games at a time: one agent, which slips, a start and a goal.

C free cells. x is a column and y a row of the drawing, from 0. Actions: 0 left, 1 right, 2 up, 3 down.
"""

from __future__ import annotations

from functools import cached_property

import numpy as np

from palaestra.control.cells import steps_from
from palaestra.control.language import Quantities, Quantity
from palaestra.errors import UserError
from palaestra.types import need_at_least, stage, value_class

WAYS = ((-1, 0), (1, 0), (0, -1), (0, 1))
FOUR_ROOMS = """
###########
#....#....#
#....#....#
#.........#
#....#....#
##.####.###
#....#....#
#....#....#
#.........#
#....#....#
###########
"""


@value_class
class MazeState:
    cell_n: np.ndarray


@stage
class Maze:
    """An agent walks from `start` to `goal`, where a game pays 1 and ends; nothing else pays. With
    probability `slip` a step goes in a direction drawn at random. A step into a wall stays.

    An observation is x and y as shares of the drawing, and which cell the agent is in. A drawing has
    "#" for walls; every other sign is free.

    Raises UserError where start or goal is a wall, or no way leads from one to the other.
    """

    drawing: str = FOUR_ROOMS
    start: tuple[int, int] = (1, 1)
    goal: tuple[int, int] = (9, 9)
    horizon: int = 80
    slip: float = 0.1

    def __post_init__(self) -> None:
        need_at_least(self, horizon=1, slip=0)
        for name, place in (("start", self.start), ("goal", self.goal)):
            if place not in self._number:
                raise UserError(f"Maze: the {name} {place} is no free cell of the drawing")
        if self._far_C[self._number[self.start]] < 0:
            raise UserError(f"Maze: no way leads from {self.start} to {self.goal}")

    @property
    def agents(self) -> int:
        return 1

    @property
    def actions(self) -> int:
        return len(WAYS)

    @property
    def observation(self) -> int:
        return 2 + len(self._cells)

    @cached_property
    def _rows(self) -> list[str]:
        return self.drawing.strip("\n").split("\n")

    @cached_property
    def _cells(self) -> list[tuple[int, int]]:
        return [
            (x, y) for y, row in enumerate(self._rows) for x, sign in enumerate(row) if sign != "#"
        ]

    @cached_property
    def _number(self) -> dict[tuple[int, int], int]:
        return {place: c for c, place in enumerate(self._cells)}

    @cached_property
    def _next_CK(self) -> np.ndarray:
        """The cell that each way leads to; its own for a wall."""
        return np.array(
            [
                [self._number.get((x + dx, y + dy), c) for dx, dy in WAYS]
                for c, (x, y) in enumerate(self._cells)
            ]
        )

    @cached_property
    def _far_C(self) -> np.ndarray:
        """Steps from each cell to the goal; -1 = no way."""
        return steps_from(self._number[self.goal], self._next_CK)

    def reset(self, rng: np.random.Generator, n: int) -> MazeState:
        return MazeState(cell_n=np.full(n, self._number[self.start]))

    def observe(self, state: MazeState) -> np.ndarray:
        n = len(state.cell_n)
        seen = np.zeros((n, 1, self.observation))
        seen[:, 0, :2] = self.places[state.cell_n] / self._size
        seen[np.arange(n), 0, 2 + state.cell_n] = 1
        return seen

    def legal(self, state: MazeState) -> None:
        return None

    def step(
        self, state: MazeState, act_nA: np.ndarray, rng: np.random.Generator
    ) -> tuple[MazeState, np.ndarray, np.ndarray]:
        n = len(state.cell_n)
        slips_n, other_n = rng.random(n) < self.slip, rng.integers(len(WAYS), size=n)
        cell_n = self._next_CK[state.cell_n, np.where(slips_n, other_n, act_nA[:, 0])]
        over_n = cell_n == self._number[self.goal]
        return MazeState(cell_n=cell_n), over_n[:, None].astype(float), over_n

    # ---- words, and the shortest way

    @property
    def about(self) -> str:
        drawing = "\n".join(self._rows)
        return (
            f"An agent walks in a maze from {self.start} to the goal {self.goal}, in at most {self.horizon} "
            f"steps. Places are (x, y), x the column and y the row, from 0; # is a wall:\n{drawing}\n"
        )

    @cached_property
    def _size(self) -> np.ndarray:
        return np.array([max(map(len, self._rows)), len(self._rows)], float)

    @cached_property
    def places(self) -> np.ndarray:
        """[C, 2] x and y of every free cell."""
        return np.array(self._cells, float)

    @property
    def visible(self) -> Quantities:
        width, height = self._size - 1
        return {
            "x": Quantity(low=0.0, high=width, about="column of the agent"),
            "y": Quantity(low=0.0, high=height, about="row of the agent"),
        }

    def view(self, obs: np.ndarray) -> dict[str, np.ndarray]:
        """[...] x and y of observations [..., O]."""
        place = obs[..., :2] * self._size
        return {"x": place[..., 0], "y": place[..., 1]}

    def route(self) -> np.ndarray:
        """[S, 2] the places of a shortest way, start and goal included; of equal ones the first."""
        cell = self._number[self.start]
        way = [cell]
        while self._far_C[cell]:
            cell = next(
                int(to) for to in self._next_CK[cell] if self._far_C[to] < self._far_C[cell]
            )
            way.append(cell)
        return self.places[way]
