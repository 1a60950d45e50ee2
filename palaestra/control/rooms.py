"""Rooms in a row with locked doors: in each room lies the key of the door to the next, in the last
one the goal.

C cells, R rooms. Actions: 0 left, 1 right, 2 up, 3 down.
"""

from __future__ import annotations

from functools import cached_property
from typing import TypeAlias

import numpy as np

from palaestra.control.cells import steps_between
from palaestra.types import stage, value_class

Place: TypeAlias = tuple[int, int]
WAYS: tuple[Place, ...] = ((-1, 0), (1, 0), (0, -1), (0, 1))


@value_class
class RoomsState:
    cell_n: np.ndarray
    key_nR: np.ndarray  # cell of the key of each door; -1 = it was taken
    goal_n: np.ndarray


@stage
class Rooms:
    """A step costs `cost`, the goal pays 1. An observation is what lies in each cell: the agent, a
    key, the goal. Ways into walls and locked doors are not legal.
    """

    rooms: int = 2
    size: int = 3
    horizon: int = 40
    cost: float = 0.01

    @property
    def agents(self) -> int:
        return 1

    @property
    def actions(self) -> int:
        return len(WAYS)

    @property
    def observation(self) -> int:
        return 3 * len(self._places)

    @cached_property
    def _places(self) -> list[Place]:
        """Column and row of every cell: rooms from left to right, each with the door behind it."""
        span = self.size + 1
        inside = lambda x, y: x % span < self.size or y == self.size // 2
        columns = range(self.rooms * span - 1)
        return [(x, y) for x in columns for y in range(self.size) if inside(x, y)]

    @cached_property
    def _next_CK(self) -> np.ndarray:
        """The cell that each way leads to; -1 = a wall."""
        number = {place: c for c, place in enumerate(self._places)}
        rows = [[number.get((x + dx, y + dy), -1) for dx, dy in WAYS] for x, y in self._places]
        return np.array(rows)

    @cached_property
    def _door_C(self) -> np.ndarray:
        """The number of the door that a cell is; -1 = none."""
        span = self.size + 1
        return np.array([x // span if x % span == self.size else -1 for x, _ in self._places])

    def _inside(self, room: int) -> np.ndarray:
        """Cells of a room."""
        span = self.size + 1
        column_C = np.array([x for x, _ in self._places])
        return np.flatnonzero((column_C // span == room) & (self._door_C < 0))

    def reset(self, rng: np.random.Generator, n: int) -> RoomsState:
        """The agent begins anywhere in the first room, but not on its key."""
        keys = [rng.choice(self._inside(r), n) for r in range(self.rooms - 1)]
        first = self._inside(0)
        other_n = rng.integers(1, len(first), n)  # cells further, around the room
        from_n = keys[0] if keys else rng.choice(first, n)
        start_n = first[(np.searchsorted(first, from_n) + other_n) % len(first)]
        goal_n = rng.choice(self._inside(self.rooms - 1), n)
        key_nR = np.stack(keys, 1) if keys else np.zeros((n, 0), int)
        return RoomsState(cell_n=start_n, key_nR=key_nR, goal_n=goal_n)

    def observe(self, state: RoomsState) -> np.ndarray:
        n, C = len(state.cell_n), len(self._places)
        seen = np.zeros((n, 3, C))
        games = np.arange(n)
        seen[games, 0, state.cell_n] = 1
        for key_n in state.key_nR.T:
            seen[games[key_n >= 0], 1, key_n[key_n >= 0]] = 1
        seen[games, 2, state.goal_n] = 1
        return seen.reshape(n, 1, 3 * C)

    def legal(self, state: RoomsState) -> np.ndarray:
        to_nK = self._next_CK[state.cell_n]
        door_nK = np.where(to_nK >= 0, self._door_C[to_nK], -1)
        locked_nK = np.zeros_like(to_nK, bool)
        for door, key_n in enumerate(state.key_nR.T):
            locked_nK |= (door_nK == door) & (key_n >= 0)[:, None]
        return ((to_nK >= 0) & ~locked_nK)[:, None]

    def step(
        self, state: RoomsState, act_nA: np.ndarray, rng: np.random.Generator
    ) -> tuple[RoomsState, np.ndarray, np.ndarray]:
        """Who tries what is not legal stays."""
        games, act_n = np.arange(len(state.cell_n)), act_nA[:, 0]
        free_n = self.legal(state)[games, 0, act_n]
        cell_n = np.where(free_n, self._next_CK[state.cell_n, act_n], state.cell_n)
        key_nR = np.where(state.key_nR == cell_n[:, None], -1, state.key_nR)
        over_n = cell_n == state.goal_n
        after = RoomsState(cell_n=cell_n, key_nR=key_nR, goal_n=state.goal_n)
        return after, (over_n - self.cost)[:, None], over_n

    # ---- the shortest way

    @cached_property
    def _far_CC(self) -> np.ndarray:
        """Steps from each cell to each other, doors open."""
        return steps_between(self._next_CK)

    def best_ways(self, obs: np.ndarray) -> np.ndarray:
        """[..., K] whether a way is on a shortest one to the next key, or else to the goal.

        Args:
            obs: observations [..., O].
        """
        seen = obs.reshape(*obs.shape[:-1], 3, -1)
        cell, goal = seen[..., 0, :].argmax(-1), seen[..., 2, :].argmax(-1)
        # keys are taken from left to right, and cells are numbered so
        target = np.where(seen[..., 1, :].any(-1), seen[..., 1, :].argmax(-1), goal)
        to = self._next_CK[cell]
        nearer = self._far_CC[to, target[..., None]] < self._far_CC[cell, target][..., None]
        return (to >= 0) & nearer
