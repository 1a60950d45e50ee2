"""A table with six blocks and three zones, seen from above: what programs of a planner act on."""

from collections.abc import Mapping, Sequence
from typing import Any, Protocol, TypeAlias

import numpy as np

import palaestra as pl

Clause: TypeAlias = tuple[str, str, str]  # "in", a block, a zone; or "on", a block, another one
COLOURS = ("red", "green", "blue", "yellow", "orange", "purple")
BLOCKS = tuple(f"{c} block" for c in COLOURS)
ZONES: Mapping[str, tuple[float, float, float, float]] = {  # x and y from, x and y to
    "left zone": (0.0, 0.5, 0.3, 1.0),
    "middle zone": (0.35, 0.5, 0.65, 1.0),
    "right zone": (0.7, 0.5, 1.0, 1.0),
}
TABLE = (0.0, 0.0, 1.0, 0.4)  # where blocks begin, and "table" is
APART, EDGE = 0.11, 0.05  # of centres on the table, and of a centre from its rectangle's edge
# by name of a template: what is wanted of blocks and zones by number, and whether the first block begins covered
TEMPLATES: Mapping[str, tuple[tuple[tuple[str, int, int], ...], bool]] = {
    "one in": ((("in", 0, 0),), False),
    "two in": ((("in", 0, 0), ("in", 1, 0)), False),
    "two apart": ((("in", 0, 0), ("in", 1, 1)), False),
    "three in": ((("in", 0, 0), ("in", 1, 0), ("in", 2, 0)), False),
    "three apart": ((("in", 0, 0), ("in", 1, 1), ("in", 2, 2)), False),
    "four in": (tuple(("in", i, 0) for i in range(4)), False),
    "all in": (tuple(("in", i, 0) for i in range(6)), False),
    "pairs": (tuple(("in", i, i // 2) for i in range(6)), False),
    "one on": ((("on", 0, 1),), False),
    "tower of three": ((("on", 0, 1), ("on", 1, 2)), False),
    "tower of four": ((("on", 0, 1), ("on", 1, 2), ("on", 2, 3)), False),
    "two towers": ((("on", 0, 1), ("on", 2, 3)), False),
    "on and in": ((("on", 0, 1), ("in", 2, 0)), False),
    "tower in a zone": ((("on", 0, 1), ("in", 1, 0)), False),
    "in and two on": ((("in", 0, 0), ("on", 1, 2), ("on", 3, 4)), False),
    "covered one in": ((("in", 0, 0),), True),
    "covered two in": ((("in", 0, 0), ("in", 1, 1)), True),
    "covered one on": ((("on", 0, 1),), True),
    "covered tower of three": ((("on", 0, 1), ("on", 1, 2)), True),
    "covered on and in": ((("on", 1, 2), ("in", 0, 0)), True),
}


class ManipulationWorld(Protocol):
    """A world with primitives that programs call. One whose states are values, so that nothing changes one
    in place and the world itself keeps nothing, may say `concurrent = True`: its tasks are attempted at
    once, those of any other one after another.

    `about` says what it is about, `primitives` has by name of a primitive its signature and what it
    does, "pick_place(block, place): ...", `example` may have a solved task as text.
    """

    @property
    def about(self) -> str: ...
    @property
    def primitives(self) -> Mapping[str, str]: ...

    def reset(self, task: Mapping[str, Any], rng: np.random.Generator) -> Any:
        """The start of a task, a row with "instruction"."""
        ...

    def poses(self, state: Any) -> Mapping[str, Any]:
        """Where things are, as plain data: what programs and the reporter read."""
        ...

    def act(
        self, state: Any, name: str, arguments: Sequence[Any], rng: np.random.Generator
    ) -> tuple[Any, Any]:
        """The state after a primitive, and what it returns, plain data. Raises ValueError, which the
        program gets, for what cannot be done.
        """
        ...

    def success(self, state: Any, task: Mapping[str, Any]) -> bool:
        """Whether the task is done: what counts, and nobody who is asked sees it."""
        ...


@pl.value_class
class TableState:
    """Centres of the blocks, and what each lies on: -1 the table, else a block by number."""

    xy_B2: np.ndarray
    on_B: np.ndarray

    def moved(self, block: int, xy: Sequence[float], on: int) -> "TableState":
        xy_B2, on_B = self.xy_B2.copy(), self.on_B.copy()
        xy_B2[block], on_B[block] = xy, on
        return TableState(xy_B2=xy_B2, on_B=on_B)


@pl.stage
class Tabletop:
    """The default's world.

    Args:
        fail: probability that a grasp misses; then the block stays, and nothing says so.
    """

    fail: float = 0.15

    @property
    def concurrent(self) -> bool:
        return True

    def __post_init__(self) -> None:
        if not 0 <= self.fail <= 1:
            raise pl.UserError(f"dahlia: fail is from 0 to 1, not {self.fail}")

    @property
    def about(self) -> str:
        zones = "; ".join(
            f"{n}, x from {x0:g} to {x1:g} and y from {y0:g} to {y1:g}"
            for n, (x0, y0, x1, y1) in ZONES.items()
        )
        return (
            f"A robot arm at a table, 1 by 1, with blocks ({', '.join(BLOCKS)}) and zones ({zones}). A block can be "
            'moved only if no other one is on it. A grasp may miss. poses() has for each block "x", "y" and "on", the '
            'name of the block that it lies on, or "table".'
        )

    @property
    def primitives(self) -> Mapping[str, str]:
        return {
            "pick_place": 'pick_place(block, place): moves a block to a free position of a zone or of "table", or to '
            "[x, y]",
            "stack": "stack(block, below): puts a block on another one",
            "push": "push(block, dx, dy): slides a block over the table",
            "free_position": 'free_position(place): [x, y] of a free position of a zone or of "table"',
            "bounding_box": "bounding_box(blocks): [x0, y0, x1, y1] around their centres",
        }

    example = (
        'Task: put the green block in the left zone\n# the green block goes to the zone\npick_place("green block", '
        '"left zone")'
    )

    def tasks(self, rng: np.random.Generator, n: int, kind: str = "") -> list[dict[str, Any]]:
        """Tasks of the templates in turn, or of one of them, with other blocks and zones each."""
        if kind and kind not in TEMPLATES:
            raise pl.UserError(
                f"dahlia: there is no kind={kind!r}; there are {', '.join(TEMPLATES)}"
            )
        names = [kind] if kind else list(TEMPLATES)
        return [self._task(names[i % len(names)], rng) for i in range(n)]

    def _task(self, name: str, rng: np.random.Generator) -> dict[str, Any]:
        wanted, covered = TEMPLATES[name]
        blocks = [BLOCKS[int(i)] for i in rng.permutation(len(BLOCKS))]
        zones = [list(ZONES)[int(i)] for i in rng.permutation(len(ZONES))]
        goal = [[w, blocks[i], zones[j] if w == "in" else blocks[j]] for w, i, j in wanted]
        return {
            "kind": name,
            "instruction": spell_goal(goal),
            "goal": goal,
            "cover": [blocks[-1], blocks[0]] if covered else [],
        }

    def reset(self, task: Mapping[str, Any], rng: np.random.Generator) -> TableState:
        self._check(task)
        state = TableState(xy_B2=np.full((len(BLOCKS), 2), -9.0), on_B=np.full(len(BLOCKS), -1))
        for block in range(len(BLOCKS)):
            state = state.moved(block, self._free(state, TABLE, rng), -1)
        if task.get("cover"):
            top, below = (BLOCKS.index(name) for name in task["cover"])
            state = state.moved(top, state.xy_B2[below], below)
        return state

    def _check(self, task: Mapping[str, Any]) -> None:
        """Raises UserError for a task whose goal cannot be tested."""
        places = {"in": tuple(ZONES), "on": BLOCKS}
        goal: list[list[str]] = task.get("goal") or [[]]
        for clause in goal:
            fits = len(clause) == 3 and clause[0] in places and clause[1] in BLOCKS
            if not fits or clause[2] not in places[clause[0]]:
                raise pl.UserError(
                    f"dahlia: the task {task.get('instruction')!r} needs a goal as "
                    f'[["in", "red block", "left zone"], ["on", "blue block", "red block"]], not {goal}'
                )

    def poses(self, state: TableState) -> Mapping[str, Any]:
        lies = lambda on: "table" if on < 0 else BLOCKS[on]
        return {
            name: {"x": round(float(x), 3), "y": round(float(y), 3), "on": lies(int(on))}
            for name, (x, y), on in zip(BLOCKS, state.xy_B2, state.on_B, strict=True)
        }

    def success(self, state: TableState, task: Mapping[str, Any]) -> bool:
        return all(self._holds(state, *clause) for clause in task["goal"])

    def _holds(self, state: TableState, what: str, block: str, place: str) -> bool:
        number = BLOCKS.index(block)
        if what == "on":
            return bool(state.on_B[number] == BLOCKS.index(place))
        x0, y0, x1, y1 = ZONES[place]
        x, y = state.xy_B2[number]
        return bool(x0 <= x <= x1 and y0 <= y <= y1)

    def act(
        self, state: TableState, name: str, arguments: Sequence[Any], rng: np.random.Generator
    ) -> tuple[TableState, Any]:
        if name == "bounding_box":
            rows = state.xy_B2[[self._block(b) for b in arguments[0]]]
            if not len(rows):
                raise ValueError("bounding_box of no blocks")
            return state, [round(float(v), 3) for v in (*rows.min(0), *rows.max(0))]
        if name == "free_position":
            return state, [round(v, 3) for v in self._free(state, self._area(arguments[0]))]
        block = self._block(arguments[0])
        if (state.on_B == block).any():
            top = BLOCKS[int(np.flatnonzero(state.on_B == block)[0])]
            raise ValueError(f"{BLOCKS[block]} cannot be moved: {top} lies on it")
        if name == "push":
            xy = np.clip(state.xy_B2[block] + [float(v) for v in arguments[1:]], 0, 1)
            return state.moved(block, xy, -1), None
        below, xy = -1, (0.0, 0.0)
        if name == "stack":
            below = self._block(arguments[1])
            if below == block or (state.on_B == below).any():
                raise ValueError(f"nothing can be put on {BLOCKS[below]}")
            xy = state.xy_B2[below]
        elif isinstance(arguments[1], str):
            xy = self._free(state.moved(block, (-9.0, -9.0), -1), self._area(arguments[1]))
        else:
            x, y = (float(v) for v in arguments[1])
            if not (0 <= x <= 1 and 0 <= y <= 1):
                raise ValueError(f"[{x:g}, {y:g}] is not on the table")
            xy = (x, y)
        missed = rng.random() < self.fail
        return (state if missed else state.moved(block, xy, below)), None

    def _block(self, name: Any) -> int:
        if name not in BLOCKS:
            raise ValueError(f"there is no {name!r}; there are {', '.join(BLOCKS)}")
        return BLOCKS.index(name)

    def _area(self, place: Any) -> tuple[float, float, float, float]:
        if place == "table":
            return TABLE
        if place not in ZONES:
            raise ValueError(f"there is no place {place!r}; there are table, {', '.join(ZONES)}")
        return ZONES[place]

    def _free(
        self, state: TableState, area: tuple[float, float, float, float], rng: Any = None
    ) -> tuple[float, float]:
        """A position of an area that is apart from all blocks: one by chance, or the first of a grid.

        Raises ValueError where there is none.
        """
        x0, y0, x1, y1 = area
        xs, ys = (
            np.arange(x0 + EDGE, x1 - EDGE + 1e-9, 0.05),
            np.arange(y0 + EDGE, y1 - EDGE + 1e-9, 0.05),
        )
        spots = np.array([(x, y) for y in ys for x in xs])
        away = np.abs(spots[:, None] - state.xy_B2).max(-1).min(1)
        free = spots[away >= APART - 1e-9]
        if not len(free):
            raise ValueError("there is no free position")
        x, y = free[int(rng.integers(len(free)))] if rng is not None else free[0]
        return float(x), float(y)


def spell_goal(goal: Sequence[Sequence[str]]) -> str:
    """A task in words."""
    zones = {place for what, _, place in goal if what == "in"}
    if len(goal) == len(BLOCKS) and len(zones) == 1:
        return f"put all blocks in the {zones.pop()}"
    return " and ".join(f"put the {block} {what} the {place}" for what, block, place in goal)
