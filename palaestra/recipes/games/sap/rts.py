"""A small real-time strategy game with MicroRTS's units: resources, ticks, buildings and armies.

    unit       cost  hit points  damage  range  build  ticks a step     a tick is ten time units of MicroRTS
    worker       1        1         1      1       5        1
    light        2        4         2      1       8        0.8
    heavy        2        4         4      1      12        1.2
    ranged       2        1         1      3      10        1
    barracks     5        4                       20
    base                 10

Map of 12 x 12, a base, a worker and a mine for each side, mirrored; 200 ticks. A side has won when the other
has neither units nor buildings, or when it is worth more at the end: resources, and the cost of what it has
(in MicroRTS the end is a draw). A square holds one unit. What is struck in a tick still strikes in it.
Costs, hit points, damage, ranges and times of building are those that SAP's own prompts tell its planner;
harvesting takes two ticks and so does bringing home. All is seen by both sides.
"""

from collections import Counter
from dataclasses import dataclass, field

import numpy as np

import palaestra as pl
from palaestra.recipes.games.sap.space import UNITS, RtsStrategy

LENGTH = 200  # ticks of a game
START = 5  # resources of a side
MINE = 25  # resources of a mine
AROUND = 0.3  # chance of a step aside where the way is taken
HOLD = 2  # ticks of harvesting, and of bringing home
WIDTH = 12
HOMES, MINES = ((1, 1), (10, 10)), ((0, 0), (11, 11))


@dataclass(frozen=True)
class UnitKind:
    """A kind of units or buildings. `pace` is steps a tick, 0 = it stands still."""

    cost: int
    hp: int
    damage: int = 0
    reach: int = 0
    build: int = 0
    pace: float = 0.0


KINDS = {
    "worker": UnitKind(1, 1, 1, 1, 5, 1),
    "light": UnitKind(2, 4, 2, 1, 8, 1.25),
    "heavy": UnitKind(2, 4, 4, 1, 12, 0.83),
    "ranged": UnitKind(2, 1, 1, 3, 10, 1),
    "barracks": UnitKind(5, 4, build=20),
    "base": UnitKind(10, 10),
}
BUILDINGS = ("base", "barracks")


@pl.value_class
class RtsOrders:
    """What a side does until it is told otherwise.

    Args:
        harvesters: workers that harvest.
        build: whether barracks are built as soon as they can be paid.
        train: kinds of units, of which the rarest is trained.
        target: "building" or "unit", which is attacked first; "" = the army defends.
        distance: from the own base, at which it defends.
    """

    harvesters: int
    build: bool
    train: tuple[str, ...]
    target: str = ""
    distance: int = 0


@dataclass
class RtsUnit:
    """A unit or building of a side. It acts when `busy` is 0."""

    kind: str
    side: int
    x: int
    y: int
    hp: int
    busy: int = 0
    harvests: bool = False
    carries: bool = False
    trains: str = ""
    ahead: float = 0.0  # steps that it has not made yet


@dataclass
class RtsSide:
    """A side: resources, and what can be told of its play so far."""

    resources: int = START
    harvested: int = 0
    spent: int = 0
    damage: int = 0  # done to the other side
    trained: Counter[str] = field(default_factory=Counter)
    built_at: int = 0  # resources when it began barracks
    most_harvesters: int = 0
    struck: Counter[str] = field(default_factory=Counter)  # what its army went for
    posts: list[int] = field(default_factory=list)  # distances of its idle army from the own base


def orders_of(strategy: RtsStrategy, side: RtsSide) -> RtsOrders:
    """What a strategy does with so many resources: barracks are begun at those that it waits for, and
    until then nothing but harvesters is trained.
    """
    waits = strategy.barracks and not side.built_at
    return RtsOrders(
        harvesters=strategy.harvesters,
        build=bool(strategy.barracks) and side.resources >= strategy.barracks,
        train=() if waits else strategy.units,
        target=strategy.target if strategy.aggressive else "",
        distance=strategy.distance,
    )


class RtsGame:
    """A game of two sides, 0 and 1."""

    def __init__(self, rng: np.random.Generator) -> None:
        self.rng, self.tick = rng, 0
        self.sides = (RtsSide(), RtsSide())
        self.mines = [MINE, MINE]
        self.units = list[RtsUnit]()
        self.taken = set(MINES)
        for side, (x, y) in enumerate(HOMES):
            self._add("base", side, x, y)
            self._beside("worker", side, x, y)

    @property
    def over(self) -> bool:
        return self.tick >= LENGTH or not all(self.of(side) for side in (0, 1))

    def worth(self, side: int) -> int:
        """Resources of a side, and the cost of what it has; 0 = it is beaten."""
        own = self.of(side)
        return sum(KINDS[u.kind].cost for u in own) + self.sides[side].resources if own else 0

    def won(self, side: int) -> int:
        """1 won, 0 drawn, -1 lost; while a game goes on, as if it ended now."""
        margin = self.worth(side) - self.worth(1 - side)
        return int(margin > 0) - int(margin < 0)

    def of(self, side: int, *kinds: str) -> list[RtsUnit]:
        """The units and buildings of a side, those of some kinds or all."""
        return [u for u in self.units if u.side == side and (not kinds or u.kind in kinds)]

    def play(self, orders: tuple[RtsOrders, RtsOrders]) -> None:
        """A tick."""
        hits = list[tuple[RtsUnit, int]]()
        for side in (0, 1):
            self._name_harvesters(side, orders[side])
        for unit in list(self.units):
            if unit.busy:
                unit.busy -= 1
            if not unit.busy:
                self._act(unit, orders[unit.side], hits)
        for target, damage in hits:
            self.sides[1 - target.side].damage += min(max(target.hp, 0), damage)
            target.hp -= damage
        self.taken -= {(u.x, u.y) for u in self.units if u.hp <= 0}
        self.units = [u for u in self.units if u.hp > 0]
        self.tick += 1

    # ---- economy

    def _add(self, kind: str, side: int, x: int, y: int, busy: int = 0) -> None:
        self.units.append(RtsUnit(kind, side, x, y, KINDS[kind].hp, busy))
        self.taken.add((x, y))

    def _beside(self, kind: str, side: int, x: int, y: int, busy: int = 0) -> bool:
        """Puts something on a free square beside a place, towards the other side if possible."""
        s = 1 - 2 * side
        for dx, dy in ((s, 0), (0, s), (-s, 0), (0, -s)):
            if self._free(x + dx, y + dy):
                self._add(kind, side, x + dx, y + dy, busy)
                return True
        return False

    def _free(self, x: int, y: int) -> bool:
        return 0 <= x < WIDTH and 0 <= y < WIDTH and (x, y) not in self.taken

    def _name_harvesters(self, side: int, orders: RtsOrders) -> None:
        workers = self.of(side, "worker")
        for i, worker in enumerate(workers):
            worker.harvests = i < orders.harvesters
        known = self.sides[side]
        known.most_harvesters = max(known.most_harvesters, sum(w.harvests for w in workers))

    def _pay(self, side: int, kind: str) -> bool:
        purse, cost = self.sides[side], KINDS[kind].cost
        if purse.resources < cost:
            return False
        purse.resources -= cost
        purse.spent += cost
        return True

    def _act(self, unit: RtsUnit, orders: RtsOrders, hits: list[tuple[RtsUnit, int]]) -> None:
        if unit.kind in BUILDINGS:
            self._produce(unit, orders)
        elif unit.harvests:
            self._harvest(unit, orders)
        elif orders.target:
            self._attack(unit, orders.target, hits)
        else:
            self._defend(unit, orders.distance, hits)

    def _produce(self, unit: RtsUnit, orders: RtsOrders) -> None:
        if unit.trains:
            if not self._beside(unit.trains, unit.side, unit.x, unit.y):
                return  # it waits for a free square
            unit.trains = ""
        side = self.sides[unit.side]
        workers = self.of(unit.side, "worker")
        lacks = unit.kind == "base" and len(workers) < orders.harvesters
        kinds = [k for k in orders.train if (k == "worker") == (unit.kind == "base")]
        kind = "worker" if lacks else min(kinds, key=lambda k: side.trained[k], default="")
        rarest = min((side.trained[k] for k in orders.train), default=0)
        if kind and not lacks and side.trained[kind] > rarest + 1:
            return  # the other building's kinds come first
        if kind and self._pay(unit.side, kind):
            unit.trains, unit.busy = kind, KINDS[kind].build
            if not lacks:
                side.trained[kind] += 1

    def _harvest(self, unit: RtsUnit, orders: RtsOrders) -> None:
        side, home, mine = self.sides[unit.side], HOMES[unit.side], MINES[unit.side]
        if orders.build and not side.built_at:
            before, busy = side.resources, KINDS["barracks"].build
            paid = self._pay(unit.side, "barracks")
            if paid and self._beside("barracks", unit.side, unit.x, unit.y, busy):
                side.built_at, unit.busy = before, busy
                return
            if paid:  # no square is free
                side.resources, side.spent = before, side.spent - KINDS["barracks"].cost
        goal = home if unit.carries else mine
        if walk(unit, *goal) > 1:
            self._step(unit, *goal)
        elif unit.carries:
            unit.carries, unit.busy = False, HOLD
            side.resources += 1
            side.harvested += 1
        elif self.mines[unit.side]:
            self.mines[unit.side] -= 1
            unit.carries, unit.busy = True, HOLD

    # ---- war

    def _step(self, unit: RtsUnit, x: int, y: int) -> None:
        """The steps of a tick towards a place, along the longer way if that is free; now and then around
        what is in the way.
        """
        unit.ahead = min(2.0, unit.ahead + KINDS[unit.kind].pace)
        while unit.ahead >= 1:
            unit.ahead -= 1
            dx, dy = x - unit.x, y - unit.y
            ways = [((dx > 0) - (dx < 0), 0), (0, (dy > 0) - (dy < 0))]
            if abs(dy) > abs(dx) or (abs(dx) == abs(dy) and self.rng.random() < 0.5):
                ways.reverse()
            if self.rng.random() < AROUND:
                ways += [(1, 0), (0, 1), (-1, 0), (0, -1)]
            for sx, sy in ways:
                if (sx or sy) and self._free(unit.x + sx, unit.y + sy):
                    self.taken.discard((unit.x, unit.y))
                    unit.x, unit.y = unit.x + sx, unit.y + sy
                    self.taken.add((unit.x, unit.y))
                    break

    def _nearest(self, unit: RtsUnit, among: list[RtsUnit]) -> RtsUnit | None:
        return min(among, key=lambda u: (walk(unit, u.x, u.y), u.hp), default=None)

    def _attack(self, unit: RtsUnit, first: str, hits: list[tuple[RtsUnit, int]]) -> None:
        """Strikes what is in reach, of the kind that it is after if possible, else walks towards that."""
        enemies = self.of(1 - unit.side)
        wanted = [u for u in enemies if (u.kind in BUILDINGS) == (first == "building")] or enemies
        goal = self._nearest(unit, wanted)
        if goal is None:
            return
        self.sides[unit.side].struck[first] += 1
        if not self._strike(unit, goal, enemies, hits):
            self._step(unit, goal.x, goal.y)

    def _defend(self, unit: RtsUnit, distance: int, hits: list[tuple[RtsUnit, int]]) -> None:
        """Meets enemies that come within the distance and two squares more, else stands at its post."""
        home, enemies = HOMES[unit.side], self.of(1 - unit.side)
        near = [u for u in enemies if walk(u, *home) <= distance + 2]
        goal = self._nearest(unit, near)
        if self._strike(unit, goal, enemies, hits):
            return
        if goal is not None:
            self._step(unit, goal.x, goal.y)
            return
        self.sides[unit.side].posts.append(walk(unit, *home))
        if walk(unit, *home) < distance:
            self._step(unit, *HOMES[1 - unit.side])
        elif walk(unit, *home) > distance:
            self._step(unit, *home)

    def _strike(
        self,
        unit: RtsUnit,
        goal: RtsUnit | None,
        enemies: list[RtsUnit],
        hits: list[tuple[RtsUnit, int]],
    ) -> bool:
        kind = KINDS[unit.kind]
        reached = [u for u in enemies if walk(unit, u.x, u.y) <= kind.reach]
        struck = goal if goal is not None and goal in reached else self._nearest(unit, reached)
        if struck is None:
            return False
        hits.append((struck, kind.damage))
        unit.busy = 1
        return True

    # ---- what can be seen

    def shown(self, side: int) -> dict[str, str]:
        """What a side has been seen to do, by feature; "" = nothing was seen of it."""
        known = self.sides[side]
        kinds = [k for k in UNITS if known.trained[k]]
        targets = known.struck.most_common(1)
        return {
            "harvesters": str(known.most_harvesters),
            "barracks": str(known.built_at),
            "units": " ".join(kinds),
            "target": targets[0][0] if targets else "",
            "distance": str(max(known.posts)) if known.posts and not targets else "",
        }


def walk(unit: RtsUnit, x: int, y: int) -> int:
    """Steps between a unit and a place."""
    return abs(unit.x - x) + abs(unit.y - y)
