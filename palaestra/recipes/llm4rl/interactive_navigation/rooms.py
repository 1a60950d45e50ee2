"""Two rooms with a wall between them, whose passages are blocked by a box, a locked door or a ledge."""

from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from typing import Any, Literal, TypeAlias

import numpy as np

import palaestra as pl

Cell: TypeAlias = tuple[int, int]
Placed: TypeAlias = tuple[tuple[str, Cell], ...]  # names with their cells
MapKind = Literal["mixed", "open", "plain", "stuck", "second door", "slippery"]
KINDS: Mapping[str, float] = {
    "open": 0.4, "plain": 0.15, "stuck": 0.15, "second door": 0.15, "slippery": 0.15,
}  # fmt: skip
SURPRISES = ("stuck", "second door", "slippery")
WIDTH, HEIGHT, WALL = 11, 9, 5  # of the map, and the column of the wall between its rooms
ROWS = (2, 4, 6)  # of the passages
ALCOVE, MOUTH = (2, 8), (2, 7)  # a place that is seen from its mouth alone
WAYS: Mapping[str, Cell] = {"west": (-1, 0), "east": (1, 0), "north": (0, -1), "south": (0, 1)}
PUSHED = 2  # cells that a box is pushed
FAILING = 3.0  # what a call that fails costs beyond the way there
ABOUT = """A robot is in the west room and has to reach the goal in the east room. Passages through the wall between \
the rooms are free, or blocked by a box, a locked door or a ledge.
walk(place): along free cells. take(key): walks to a key. open(door): needs the door's key and a free way to it. \
push(box, way): from behind the box, two cells, which have to be free. climb(ledge): from the west, over a box \
that lies just west of the ledge. explore(): walks to where something unseen may be."""


@pl.value_class
class BlockedRoomsView:
    """What the robot knows: `walls` and cells of things. A door has the name of its key; one that is
    open is none. `unseen` are cells that may hold something.
    """

    robot: Cell
    goal: Cell
    walls: frozenset[Cell]
    boxes: Placed = ()
    keys: Placed = ()
    held: tuple[str, ...] = ()
    doors: tuple[tuple[str, Cell, str], ...] = ()
    ledges: Placed = ()
    unseen: tuple[Cell, ...] = ()

    @property
    def blocked(self) -> frozenset[Cell]:
        things = (*self.boxes, *self.ledges, *(d[:2] for d in self.doors))
        return self.walls | {cell for _, cell in things}

    def where(self, name: str) -> Cell:
        placed = (*self.boxes, *self.keys, *self.ledges, *(d[:2] for d in self.doors))
        return dict(placed)[name]


@pl.value_class
class BlockedRoomsState:
    """A view, and what it does not tell: things that fail when they are used, a second door behind
    another one, and keys that were not seen.
    """

    view: BlockedRoomsView
    faulty: tuple[str, ...] = ()
    behind: tuple[tuple[str, tuple[str, Cell, str]], ...] = ()
    hidden: Placed = ()


@lru_cache(maxsize=4096)
def distances(start: Cell, blocked: frozenset[Cell]) -> Mapping[Cell, int]:
    """Steps along free cells to every cell that can be reached."""
    steps, queue = {start: 0}, deque([start])
    while queue:
        x, y = queue.popleft()
        for dx, dy in WAYS.values():
            cell = (x + dx, y + dy)
            if (
                cell not in steps
                and cell not in blocked
                and cell[0] in range(WIDTH)
                and cell[1] in range(HEIGHT)
            ):
                steps[cell] = steps[x, y] + 1
                queue.append(cell)
    return steps


@pl.stage
class BlockedRooms:
    """The default's world. Its primitives are exact scripts. A step costs 1, a cell that a box is pushed
    over 2, a climb 2, opening 1, and a call that fails 3 beyond the way there.

    Args:
        kind: of the maps, or "mixed": 40% have a free passage; in the others there is no way without
            moving something, and three of four kinds hide that a box is stuck, that a second door is
            behind the first (its key in an alcove; half of these maps have no other passage), or that
            the ledge cannot be climbed.
    """

    kind: MapKind = "mixed"

    certain = True
    explore = "explore"

    @property
    def about(self) -> str:
        return ABOUT

    @property
    def primitives(self) -> Mapping[str, Sequence[str]]:
        return {
            "walk": ("place",),
            "take": ("key",),
            "open": ("door",),
            "push": ("box", "way"),
            "climb": ("ledge",),
            "explore": (),
        }

    def reset(self, rng: np.random.Generator) -> BlockedRoomsState:
        kind = str(rng.choice(list(KINDS), p=list(KINDS.values())))
        kind = kind if self.kind == "mixed" else self.kind
        rows = [int(y) for y in rng.permutation(ROWS)]
        alone, opens = kind == "second door" and rng.random() < 0.5, int(rng.integers(3))
        edge = {(x, y) for x in range(WIDTH) for y in (0, HEIGHT - 1)}
        edge |= {(x, y) for y in range(HEIGHT) for x in (0, WIDTH - 1)}
        gaps = {(WALL, y) for y in (rows[1:2] if alone else rows)}
        walls = (edge | {(WALL, y) for y in range(HEIGHT)}) - gaps - {ALCOVE}
        things: dict[str, Any] = {
            "box": ("box 1", (WALL, rows[0])),
            "ledge": ("ledge 1", (WALL, rows[2])),
        }
        step = ("box 2", (2, rows[2]))  # two cells west of where it is a step
        free = [(x, y) for x in range(1, WALL) for y in range(1, HEIGHT - 1)]
        taken = {step[1], (1, rows[2]), *((x, y) for y in rows for x in (3, 4))}
        spots = [c for c in free if c not in taken]
        start, key = (spots[int(i)] for i in rng.permutation(len(spots))[:2])
        goal = (int(rng.integers(8, WIDTH - 1)), int(rng.choice([1, 3, 5, 7])))
        door = ("door 1", (WALL, rows[1]), "key 1")
        lacks = ("box", "door", "ledge")[opens] if kind == "open" else ""
        boxes = [things["box"]] if not alone and lacks != "box" else []
        boxes += [step] if not alone and lacks != "ledge" else []
        view = BlockedRoomsView(
            robot=start,
            goal=goal,
            walls=frozenset(walls),
            boxes=tuple(boxes),
            keys=(("key 1", key),) if lacks != "door" else (),
            doors=(door,) if lacks != "door" else (),
            ledges=(things["ledge"],) if not alone and lacks != "ledge" else (),
            unseen=(ALCOVE,),
        )
        second = ("door 2", (WALL + 1, rows[1]), "key 2")
        return BlockedRoomsState(
            view=view,
            faulty={"stuck": ("box 1",), "slippery": ("ledge 1",)}.get(kind, ()),
            behind=(("door 1", second),) if kind == "second door" else (),
            hidden=(("key 2", ALCOVE),) if kind == "second door" else (),
        )

    def surprising(self, state: BlockedRoomsState) -> bool:
        return bool(state.faulty or state.behind)

    def view(self, state: BlockedRoomsState) -> BlockedRoomsView:
        return state.view

    def values(self, view: BlockedRoomsView) -> Mapping[str, Sequence[str]]:
        return {
            "place": ("goal",),
            "key": [n for n, _ in view.keys],
            "door": [d[0] for d in view.doors],
            "box": [n for n, _ in view.boxes],
            "ledge": [n for n, _ in view.ledges],
            "way": list(WAYS),
        }

    def spell(self, view: BlockedRoomsView) -> str:
        """A drawing, and every thing with its column and row."""
        marks = {view.robot: "R", view.goal: "G"} | dict.fromkeys(view.unseen, "?")
        marks |= {c: "B" for _, c in view.boxes} | {c: "k" for _, c in view.keys}
        marks |= {d[1]: "D" for d in view.doors} | {c: "L" for _, c in view.ledges}
        draw = lambda c: "#" if c in view.walls else marks.get(c, ".")
        rows = ["".join(draw((x, y)) for x in range(WIDTH)) for y in range(HEIGHT)]
        at = lambda placed: ", ".join(f"{n} at {c[0]},{c[1]}" for n, c in placed) or "none"
        doors = ", ".join(f"{n} at {c[0]},{c[1]} needs {k}" for n, c, k in view.doors) or "none"
        return "\n".join(
            [
                *rows,
                f"(column,row) robot at {view.robot[0]},{view.robot[1]}; goal at {view.goal[0]},{view.goal[1]}",
                f"boxes: {at(view.boxes)}; ledges: {at(view.ledges)}",
                f"keys: {at(view.keys)}; held: {', '.join(view.held) or 'none'}; doors: {doors}",
                f"unseen: {at(('place', c) for c in view.unseen)}",
            ]
        )

    def reached(self, view: BlockedRoomsView) -> bool:
        return view.robot == view.goal

    def refuse(self, view: BlockedRoomsView, name: str, arguments: tuple[str, ...]) -> str:
        if name == "open" and self._key(view, arguments[0]) not in view.held:
            return f"{arguments[0]} needs {self._key(view, arguments[0])}, which is not held"
        if name == "explore" and not view.unseen:
            return "nothing is unseen"
        if name == "push":
            ahead = self._ahead(view, *arguments)
            if any(c in view.blocked for c in ahead):
                return f"{arguments[0]} cannot be pushed {PUSHED} cells {arguments[1]}"
        if name == "climb":
            x, y = view.where(arguments[0])
            if (x - 1, y) not in [c for _, c in view.boxes]:
                return f"no box lies just west of {arguments[0]}"
        reach = distances(view.robot, view.blocked)
        return "" if self._stand(view, name, arguments, reach) in reach else "there is no free way"

    def predict(
        self, view: BlockedRoomsView, name: str, arguments: tuple[str, ...]
    ) -> BlockedRoomsView:
        after = self._apply(view, name, arguments)[0]
        return replace(after, unseen=()) if name == "explore" else after

    def execute(
        self,
        state: BlockedRoomsState,
        name: str,
        arguments: tuple[str, ...],
        rng: np.random.Generator,
    ) -> tuple[BlockedRoomsState, float, bool]:
        view = state.view
        if self.refuse(view, name, arguments):
            return state, FAILING, False
        after, cost = self._apply(view, name, arguments)
        used = arguments[:1]
        if name in ("push", "climb") and set(used) & set(state.faulty):
            reach = distances(view.robot, view.blocked)
            stand = self._stand(view, name, arguments, reach)
            return (
                self._look(replace(state, view=replace(view, robot=stand))),
                reach[stand] + FAILING,
                False,
            )
        if name == "open":
            doors = tuple(d for n, d in state.behind if n == used[0])
            after = replace(after, doors=(*after.doors, *doors))
        return self._look(replace(state, view=after)), cost, True

    def _look(self, state: BlockedRoomsState) -> BlockedRoomsState:
        """What is seen from where the robot is."""
        if state.view.robot != MOUTH or not state.view.unseen:
            return state
        view = replace(state.view, unseen=(), keys=(*state.view.keys, *state.hidden))
        return replace(state, view=view, hidden=())

    def _key(self, view: BlockedRoomsView, door: str) -> str:
        return next(key for name, _, key in view.doors if name == door)

    def _ahead(self, view: BlockedRoomsView, box: str, way: str) -> list[Cell]:
        (x, y), (dx, dy) = view.where(box), WAYS[way]
        return [(x + k * dx, y + k * dy) for k in range(1, PUSHED + 1)]

    def _stand(
        self,
        view: BlockedRoomsView,
        name: str,
        arguments: tuple[str, ...],
        reach: Mapping[Cell, int],
    ) -> Cell:
        """Where the robot has to be for a call."""
        if name == "walk":
            return view.goal
        if name == "take":
            return view.where(arguments[0])
        if name == "explore":
            return MOUTH
        x, y = view.where(arguments[0])
        if name == "push":
            dx, dy = WAYS[arguments[1]]
            return (x - dx, y - dy)
        if name == "climb":
            return (x - 2, y)
        beside = [(x + dx, y + dy) for dx, dy in WAYS.values()]
        return min(beside, key=lambda c: reach.get(c, WIDTH * HEIGHT))

    def _apply(
        self, view: BlockedRoomsView, name: str, arguments: tuple[str, ...]
    ) -> tuple[BlockedRoomsView, float]:
        """The view after a call that works, and its cost."""
        reach = distances(view.robot, view.blocked)
        stand = self._stand(view, name, arguments, reach)
        cost, there = float(reach[stand]), replace(view, robot=stand)
        if name == "take":
            keys = tuple(k for k in view.keys if k[0] != arguments[0])
            return replace(there, keys=keys, held=(*view.held, arguments[0])), cost
        if name == "open":
            doors = tuple(d for d in view.doors if d[0] != arguments[0])
            return replace(there, doors=doors), cost + 1
        if name == "push":
            end = self._ahead(view, *arguments)
            boxes = tuple((n, end[-1] if n == arguments[0] else c) for n, c in view.boxes)
            return replace(there, boxes=boxes, robot=end[-2]), cost + 2 * PUSHED
        if name == "climb":
            x, y = view.where(arguments[0])
            return replace(there, robot=(x + 1, y)), cost + 2
        return there, cost
