"""The high level: waypoints from a start to a goal, by A* or by a language model whose answer is checked.

C free cells, which are numbered row by row; a waypoint is the middle of one.
"""

import heapq
from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Annotated, Any

import numpy as np
from pydantic import AfterValidator, BaseModel, Field, create_model

import palaestra as pl
from palaestra.recipes.llm4rl.skill_nav.yard import (
    FASTEST,
    FLOOR,
    GAP,
    HIGH,
    NARROW,
    SLOW,
    WALL,
    cells_of,
    kind_at,
    read_map,
)

ASKS = 3  # a reply, and two repairs
LEG, CLEAR = 3.0, 0.2  # metres between waypoints at most, and from the way to a wall at least
SPACING = 2  # cells between waypoints of A* at most
# seconds for a metre of each kind, for a planner that knows the ground; gaps have to be aimed at
SECONDS: Mapping[int, float] = {FLOOR: 1 / FASTEST, SLOW: 1 / HIGH, NARROW: 1.5 / FASTEST}
WORDS = {FLOOR: "floor", SLOW: "slow ground", NARROW: "narrow gap"}
ASK = """A robot walks on a map of cells of 1 m. # is a wall, . floor, ~ slow ground, which it can cross at half \
speed, + a gap of {gap:g} m, which it can pass in the middle. Row 0 is the first, column 0 the leftmost:
{drawing}

Waypoints are cells, by index:
{cells}

The robot is at {start} and has to go to {goal}. {failed}Name the waypoints of its way in their order, the last one \
{goal}. From one to the next there are at most {leg:g} m in a straight line, which stays {clear:g} m from walls. \
Answer with {{"waypoints": [INDEX, ...]}}.
"""


class YardMap:
    """A map with what planners need."""

    def __init__(self, drawing: str):
        self.drawing = drawing.strip("\n")
        self.map_HW = read_map(drawing)
        self.cells = cells_of(self.map_HW)
        self.number = {cell: i for i, cell in enumerate(self.cells)}
        if len(self.cells) < 2:
            raise pl.UserError("a map has two free cells at least")

    @cached_property
    def next(self) -> list[list[int]]:
        """The free cells beside each."""
        sides = ((-1, 0), (1, 0), (0, -1), (0, 1))
        return [
            [self.number[x + dx, y + dy] for dx, dy in sides if (x + dx, y + dy) in self.number]
            for x, y in self.cells
        ]

    @cached_property
    def region_C(self) -> np.ndarray:
        """A number for each cell, the same for those between which there is a way."""
        region = np.full(len(self.cells), -1)
        for first in range(len(self.cells)):
            left = [first] if region[first] < 0 else []
            while left:
                cell = left.pop()
                region[cell] = first
                left += [to for to in self.next[cell] if region[to] < 0]
        return region

    def middle(self, cell: int) -> tuple[float, float]:
        x, y = self.cells[cell]
        return x + 0.5, y + 0.5

    def nearest(self, place: np.ndarray) -> int:
        """The free cell whose middle is nearest to a place [2]."""
        return int(np.linalg.norm(np.array(self.cells) + 0.5 - place, axis=1).argmin())

    def way(self, start: int, goal: int, seconds: Mapping[int, float] | None = None) -> list[int]:
        """Cells of a cheapest way, start and goal included, by A* with the distance along rows and columns;
        [] = there is none. Cells cost 1, or `seconds` by their kind.
        """
        cost = [1.0 if seconds is None else seconds[int(self.map_HW[y, x])] for x, y in self.cells]
        least, (gx, gy) = min(cost), self.cells[goal]
        ahead = lambda c: least * (abs(self.cells[c][0] - gx) + abs(self.cells[c][1] - gy))
        best, before = {start: 0.0}, {start: -1}
        left, closed = [(ahead(start), start)], set[int]()
        while left:
            _, cell = heapq.heappop(left)
            if cell == goal:
                path = [cell]
                while before[path[-1]] >= 0:
                    path.append(before[path[-1]])
                return path[::-1]
            if cell in closed:
                continue
            closed.add(cell)
            for to in self.next[cell]:
                spent = best[cell] + cost[to]
                if spent < best.get(to, np.inf):
                    best[to], before[to] = spent, cell
                    heapq.heappush(left, (spent + ahead(to), to))
        return []

    def waypoints(
        self, start: int, goal: int, seconds: Mapping[int, float] | None = None
    ) -> list[int]:
        """Of a cheapest way the cells where it turns, others so that no two are more than SPACING cells apart,
        and the goal, which is the only one of who is in its cell; with `seconds`, which know of gaps, those
        before, in and behind one, too.
        """
        if start == goal:
            return [goal]
        path = self.way(start, goal, seconds)
        narrow = [seconds is not None and int(self.map_HW[y, x]) == NARROW for x, y in self.cells]
        kept, last = list[int](), 0
        for i in range(1, len(path)):
            (ax, ay), (bx, by) = self.cells[path[i - 1]], self.cells[path[i]]
            turn = i + 1 < len(path) and self.cells[path[i + 1]] != (2 * bx - ax, 2 * by - ay)
            gap = any(narrow[c] for c in path[i - 1 : i + 2])
            if turn or gap or i - last >= SPACING or i + 1 == len(path):
                kept.append(path[i])
                last = i
        return kept

    def wrong_with(self, start: int, goal: int, waypoints: Sequence[int]) -> str:
        """What is wrong with waypoints, in words for who wrote them; "" = nothing."""
        if missing := [w for w in waypoints if not 0 <= w < len(self.cells)]:
            return f"there is no index {missing[0]}; there are 0 to {len(self.cells) - 1}"
        if not waypoints or waypoints[-1] != goal:
            return f"the last waypoint is {goal}, where the robot has to go"
        for a, b in zip([start, *waypoints], waypoints, strict=False):
            one, other = np.array(self.middle(a)), np.array(self.middle(b))
            far = float(np.linalg.norm(other - one))
            if far > LEG:
                return f"from {a} to {b} there are {far:.2f} m, more than {LEG:g}; name one between"
            if self._crosses(one, other):
                return f"between {a} and {b} there is a wall in the way"
        return ""

    def _crosses(self, one: np.ndarray, other: np.ndarray) -> bool:
        """Whether a wall is within CLEAR of a line."""
        way = other - one
        size = float(np.linalg.norm(way))
        if not size:
            return False
        side = np.array([-way[1], way[0]]) / size * CLEAR
        line = one + np.linspace(0, 1, 31)[:, None] * way
        places = np.concatenate([line, line + side, line - side])
        return bool((kind_at(self.map_HW[None], places[None]) == WALL).any())

    def form(self, start: int, goal: int) -> type[BaseModel]:
        """{"waypoints": [INDEX, ...]} with which nothing is wrong."""

        def check(waypoints: list[int]) -> list[int]:
            if why := self.wrong_with(start, goal, waypoints):
                raise ValueError(why)
            return waypoints

        most = Field(min_length=1, max_length=2 * len(self.cells))
        whole: Any = Annotated[list[int], most, AfterValidator(check)]
        return create_model("WaypointReply", waypoints=(whole, ...))

    def question(self, start: int, goal: int, failed: int | None = None) -> str:
        cells = "\n".join(
            f"- {i}: column {x}, row {y}, {WORDS[int(self.map_HW[y, x])]}"
            for i, (x, y) in enumerate(self.cells)
        )
        why = "" if failed is None else f"It did not reach {failed} in time. "
        return ASK.format(
            gap=2 * GAP, drawing=self.drawing, cells=cells, start=start, goal=goal, failed=why, leg=LEG, clear=CLEAR
        )  # fmt: skip


class WaypointPlanner:
    """Plans by A*, which knows walls alone, or by A* on the ground (`seconds`)."""

    def __init__(self, seconds: Mapping[int, float] | None = None):
        self.seconds = seconds
        self.numbers = {"asked": 0, "fallbacks": 0}

    async def plan(self, yard: YardMap, start: int, goal: int, failed: int | None) -> list[int]:
        return yard.waypoints(start, goal, self.seconds)


class ModelPlanner:
    """A chat model, asked once about the same; A* plans where no answer fits, which is counted.

    Args:
        shuffled: the control: waypoints are those of another question asked before, whatever its map, as far as
            the map has cells of these numbers, and end at the goal all the same.
    """

    def __init__(self, ctx: pl.Context, source: pl.Source, key: pl.Key, shuffled: bool = False):
        self.ctx, self.source, self.shuffled = ctx, source, shuffled
        self.rng = pl.rng_of((*key, "shuffled"))
        self.known: dict[str, list[int] | None] = {}
        self.numbers = {"asked": 0, "fallbacks": 0}

    async def plan(self, yard: YardMap, start: int, goal: int, failed: int | None) -> list[int]:
        text = yard.question(start, goal, failed)
        if text not in self.known:
            self.numbers["asked"] += 1
            self.known[text] = await self._ask(text, yard.form(start, goal))
        own = self.known[text]
        if self.shuffled:
            others = [w for t, w in self.known.items() if t != text and w is not None]
            way = others[int(self.rng.integers(len(others)))] if others else []
            return [*(w for w in way[:-1] if w < len(yard.cells)), goal]
        if own is None:
            self.numbers["fallbacks"] += 1
            return yard.waypoints(start, goal)
        return own

    async def _ask(self, text: str, form: type[BaseModel]) -> list[int] | None:
        request = pl.ChatRequest(messages=pl.services.question_messages(text), max_tokens=512)
        try:
            reply: Any = await self.ctx.ask_for(self.source, request, form, asks=ASKS)
        except pl.Fault as fault:
            if fault.cause != "chat-format":
                raise
            return None
        return list(reply.waypoints)


class DirectPlanner:
    """Nobody plans: the goal is the only waypoint."""

    def __init__(self) -> None:
        self.numbers = {"asked": 0, "fallbacks": 0}

    async def plan(self, yard: YardMap, start: int, goal: int, failed: int | None) -> list[int]:
        return [goal]
