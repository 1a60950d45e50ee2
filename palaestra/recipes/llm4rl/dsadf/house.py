"""A house with two rooms, a cup and a book, n games at a time: the default of dsadf.

C free cells. x is a column and y a row of the drawing, from 0. Actions: left, right, up, down, take, put.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cached_property

import numpy as np

import palaestra as pl

WAYS = ((-1, 0), (1, 0), (0, -1), (0, 1))
TAKE, PUT = 4, 5
THINGS = ("cup", "book")
PLACES: Mapping[str, tuple[int, int]] = {
    "sink": (1, 1),
    "desk": (3, 3),
    "bed": (7, 1),
    "shelf": (5, 3),
}
DRAWING = """
#########
#...#...#
#.......#
#...#...#
#########
"""


@pl.value_class
class ErrandState:
    cell_n: np.ndarray
    thing_nT: np.ndarray  # the cell of each thing; that of the agent while it is carried
    hands_n: np.ndarray  # 0 = empty, else the number of the thing, from 1


@pl.stage
class ErrandHouse:
    """An agent walks, takes what lies where it stands, and puts it down; it carries one thing. Nothing is
    paid and nothing ends a game but its horizon: what is wanted, goals and errands say.

    Agent and things begin anywhere, things not on a named place. An observation is the cell of the agent, of
    the cup and of the book, and what is in its hands, each as one of several.
    """

    horizon: int = 60

    @property
    def agents(self) -> int:
        return 1

    @property
    def actions(self) -> int:
        return len(WAYS) + 2

    @property
    def action_names(self) -> Sequence[str]:
        return ("left", "right", "up", "down", "take", "put")

    @property
    def observation(self) -> int:
        return (1 + len(THINGS)) * len(self.cells) + 1 + len(THINGS)

    @cached_property
    def cells(self) -> list[tuple[int, int]]:
        rows = DRAWING.strip("\n").split("\n")
        return [(x, y) for y, row in enumerate(rows) for x, sign in enumerate(row) if sign != "#"]

    @cached_property
    def _next_CK(self) -> np.ndarray:
        """The cell that each way leads to; its own for a wall."""
        number = {place: c for c, place in enumerate(self.cells)}
        rows = [
            [number.get((x + dx, y + dy), c) for dx, dy in WAYS]
            for c, (x, y) in enumerate(self.cells)
        ]
        return np.array(rows)

    def reset(self, rng: np.random.Generator, n: int) -> ErrandState:
        named = set(PLACES.values())
        free = [c for c, place in enumerate(self.cells) if place not in named]
        things = np.stack([rng.choice(free, len(THINGS), replace=False) for _ in range(n)])
        cell_n = rng.integers(len(self.cells), size=n)
        return ErrandState(cell_n=cell_n, thing_nT=things, hands_n=np.zeros(n, int))

    def observe(self, state: ErrandState) -> np.ndarray:
        n, C = len(state.cell_n), len(self.cells)
        seen, games = np.zeros((n, 1, self.observation)), np.arange(n)
        seen[games, 0, state.cell_n] = 1
        for t in range(len(THINGS)):
            seen[games, 0, (1 + t) * C + state.thing_nT[:, t]] = 1
        seen[games, 0, (1 + len(THINGS)) * C + state.hands_n] = 1
        return seen

    def legal(self, state: ErrandState) -> None:
        return None

    def step(
        self, state: ErrandState, act_nA: np.ndarray, rng: np.random.Generator
    ) -> tuple[ErrandState, np.ndarray, np.ndarray]:
        """Who tries what cannot be done stays as it is."""
        act_n, n = act_nA[:, 0], len(state.cell_n)
        walks_n = act_n < len(WAYS)
        to_n = self._next_CK[state.cell_n, np.where(walks_n, act_n, 0)]
        cell_n = np.where(walks_n, to_n, state.cell_n)
        hands_n, thing_nT = state.hands_n.copy(), state.thing_nT.copy()
        for t in range(len(THINGS)):
            carried_n = state.hands_n == 1 + t
            thing_nT[carried_n, t] = cell_n[carried_n]
            others = [o for o in range(len(THINGS)) if o != t]
            free_n = (state.thing_nT[:, others] != cell_n[:, None]).all(1)
            hands_n[carried_n & (act_n == PUT) & free_n] = 0
            here_n = (state.hands_n == 0) & (state.thing_nT[:, t] == cell_n)
            hands_n[here_n & (act_n == TAKE)] = 1 + t
        after = replace(state, cell_n=cell_n, thing_nT=thing_nT, hands_n=hands_n)
        return after, np.zeros((n, 1)), np.zeros(n, bool)

    # ---- words

    @property
    def about(self) -> str:
        places = ", ".join(f"{name} {place}" for name, place in PLACES.items())
        return (
            "An agent walks in a house, takes things and puts them down; it carries one. Places are (x, y), x "
            f"the column and y the row, from 0; # is a wall:\n{DRAWING.strip()}\nThere are {places}, a cup and "
            "a book. A thing is taken where it lies; where one thing lies no other is put."
        )

    @property
    def visible(self) -> pl.control.Quantities:
        make = pl.control.Quantity
        wide, tall = (float(max(x)) for x in zip(*self.cells, strict=True))
        return {
            f"{who}{axis}": make(low=0.0, high=high, about=f"{line} of the {who[:-1] or 'agent'}")
            for who in ("", *(f"{t}_" for t in THINGS))
            for axis, high, line in (("x", wide, "column"), ("y", tall, "row"))
        } | {"hands": make(low=0.0, high=2.0, about="0 = empty, 1 = the cup, 2 = the book")}

    def view(self, obs: np.ndarray) -> dict[str, np.ndarray]:
        """[...] by name, of observations [..., O]."""
        C, place_C = len(self.cells), np.array(self.cells, float)
        columns: dict[str, np.ndarray] = {}
        for i, who in enumerate(("", *(f"{t}_" for t in THINGS))):
            place = place_C[obs[..., i * C : (i + 1) * C].argmax(-1)]
            columns |= {f"{who}x": place[..., 0], f"{who}y": place[..., 1]}
        hands = obs[..., (1 + len(THINGS)) * C : (2 + len(THINGS)) * C].argmax(-1)
        return columns | {"hands": hands.astype(float)}

    # ---- the shortest way

    @cached_property
    def _far_CC(self) -> np.ndarray:
        """Steps from each cell to each other."""
        return pl.control.steps_between(self._next_CK)

    def best_actions(self, obs: np.ndarray, goals: Sequence[str]) -> np.ndarray:
        """[m] the first action of a shortest way from observations [m, O] to one of this house's goals each;
        of equal ones the first. For an oracle.
        """
        seen = self.view(obs)
        number = {place: c for c, place in enumerate(self.cells)}
        at = lambda who, i: number[int(seen[f"{who}x"][i]), int(seen[f"{who}y"][i])]
        act = []
        for i, goal in enumerate(goals):
            verb, thing, to = spelled_goal(goal)
            hands, cell = int(seen["hands"][i]), at("", i)
            # what has to be in the hands first, and where to act
            wanted = 1 + THINGS.index(thing) if thing else 0
            if verb == "go" or hands == wanted:
                target, last = number[PLACES[to]], PUT
            elif hands == 0:
                target, last = at(f"{thing}_", i), TAKE
            else:  # the other thing is in the hands, and is not put where this one lies
                moves = int((self._next_CK[cell] != cell).argmax())
                target, last = cell, moves if at(f"{thing}_", i) == cell else PUT
            nearer = self._far_CC[self._next_CK[cell], target] < self._far_CC[cell, target]
            act.append(last if cell == target else int(nearer.argmax()))
        return np.array(act)


def spelled_goal(goal: str) -> tuple[str, str, str]:
    """Verb, thing and place of "go to the PLACE", "take the THING", "put the THING on the PLACE"."""
    words = goal.split()
    thing = next((w for w in words if w in THINGS), "")
    to = next((w for w in words if w in PLACES), next(iter(PLACES)))
    return words[0], thing, to
