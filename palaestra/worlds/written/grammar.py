"""Games that a grammar writes in the form in which a model does: rules, what the numbers of moves
mean, and a Gym class. They need no model, are small enough to be solved, and some of them are bad on
purpose (won by the first move, or never over), so that the checks have something to find.

    take    stones are taken from a heap; who takes the last one wins, or loses
    heaps   the same from one of two heaps
    race    a counter grows; who reaches the goal wins, or loses
    row     a stone is put on a small board; who completes a line wins, or loses
    tug     each player pulls a token to an own end of a track
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np

from palaestra.types import value_class


@value_class
class WrittenRules:
    """A written game: a name, its rules for players, what the numbers of its moves mean, a class, and the
    weights of an agent that was trained on it, "" = none.
    """

    title: str
    rules: str
    moves: str
    code: str
    agent: str = ""


CLASS = """class CustomEnv:
    def __init__(self):
        self.reset()

    def reset(self, seed=None, options=None):
        self.{state} = {start}
        self.current_player = 1
        return self.{state}, {{}}

    def valid_moves(self):
        return {legal}

    def step(self, action):
        mover = self.current_player
        if action not in self.valid_moves():
            return self.{state}, -10, True, False, {{}}
{change}
        self.current_player = -mover
        done, reward = {ending}
        return self.{state}, reward, done, False, {{}}

    def render(self):
        return {board}
"""
LINE = """
def complete(cells, columns, rows, k):
    for y in range(rows):
        for x in range(columns):
            for dx, dy in ((1, 0), (0, 1), (1, 1), (-1, 1)):
                ex, ey = x + (k - 1) * dx, y + (k - 1) * dy
                if 0 <= ex < columns and ey < rows:
                    line = {cells[(y + i * dy) * columns + x + i * dx] for i in range(k)}
                    if len(line) == 1 and "." not in line:
                        return True
    return False
"""


def listed(numbers: tuple[int, ...]) -> str:
    """ "1, 2 or 4"."""
    *most, last = map(str, numbers)
    return f"{', '.join(most)} or {last}" if most else last


def some_steps(rng: np.random.Generator) -> tuple[int, ...]:
    """1 and one or two of 2, 3 and 4."""
    more = rng.permutation([2, 3, 4])[: int(rng.integers(1, 3))].tolist()
    return (1, *sorted(more))


def draw_take(rng: np.random.Generator) -> WrittenRules:
    n, steps, lose = int(rng.integers(3, 19)), some_steps(rng), bool(rng.integers(2))
    return WrittenRules(
        title=f"take {n} {steps} {lose}",
        rules=f"A heap has {n} stones. In turn take {listed(steps)}. "
        f"Who takes the last stone {'loses' if lose else 'wins'}.",
        moves="A move is the number of stones.",
        code=CLASS.format(
            state="stones",
            start=n,
            legal=f"[s for s in {steps} if s <= self.stones]",
            change="        self.stones -= action",
            ending=f"self.stones == 0, {-1 if lose else 1} * (self.stones == 0)",
            board='f"stones {self.stones}"',
        ),
    )


def draw_heaps(rng: np.random.Generator) -> WrittenRules:
    a, b, lose = int(rng.integers(1, 6)), int(rng.integers(2, 6)), bool(rng.integers(2))
    return WrittenRules(
        title=f"heaps {a} {b} {lose}",
        rules=f"Two heaps have {a} and {b} stones. In turn take any number from one. "
        f"Who takes the last stone of all {'loses' if lose else 'wins'}.",
        moves="A move is heap and number: 12 takes 2 from heap 1.",
        code=CLASS.format(
            state="heaps",
            start=[a, b],
            legal="[10 * (i + 1) + n for i in (0, 1) for n in range(1, self.heaps[i] + 1)]",
            change="        self.heaps[action // 10 - 1] -= action % 10",
            ending=f"not any(self.heaps), {-1 if lose else 1} * (not any(self.heaps))",
            board='f"heaps {self.heaps[0]} {self.heaps[1]}"',
        ),
    )


def draw_race(rng: np.random.Generator) -> WrittenRules:
    n, steps, lose = int(rng.integers(4, 25)), some_steps(rng), bool(rng.integers(2))
    return WrittenRules(
        title=f"race {n} {steps} {lose}",
        rules=f"A counter is 0. In turn add {listed(steps)}, not beyond {n}. "
        f"Who reaches {n} {'loses' if lose else 'wins'}.",
        moves="A move is the number that is added.",
        code=CLASS.format(
            state="count",
            start=0,
            legal=f"[s for s in {steps} if self.count + s <= {n}]",
            change="        self.count += action",
            ending=f"self.count == {n}, {-1 if lose else 1} * (self.count == {n})",
            board='f"counter {self.count}"',
        ),
    )


def draw_row(rng: np.random.Generator) -> WrittenRules:
    columns, rows, lose = int(rng.integers(3, 6)), int(rng.integers(1, 4)), bool(rng.integers(2))
    k = int(rng.integers(2, 4))
    moves = f"0 to {columns * rows - 1} are the squares, row by row."
    code = CLASS.format(
        state="cells",
        start=["."] * (columns * rows),
        legal='[i for i, c in enumerate(self.cells) if c == "."]',
        change='        self.cells[action] = "#"',
        ending=f"(line := complete(self.cells, {columns}, {rows}, {k})) or "
        f'"." not in self.cells, {-1 if lose else 1} * line',
        board=f'"\\n".join("".join(self.cells[i : i + {columns}]) '
        f"for i in range(0, {columns * rows}, {columns}))",
    )
    return WrittenRules(
        title=f"row {columns} {rows} {k} {lose}",
        rules=f"A board has {columns} columns and {rows} rows. In turn put # on a free square (.). "
        f"Who completes {k} in a line {'loses' if lose else 'wins'}.",
        moves=moves,
        code=LINE.lstrip() + "\n\n" + code,
    )


def draw_tug(rng: np.random.Generator) -> WrittenRules:
    width, steps = int(rng.integers(2, 6)), some_steps(rng)
    n = 2 * width
    return WrittenRules(
        title=f"tug {n} {steps}",
        rules=f"A token is on square {width} of 0 to {n}. In turn pull it by {listed(steps)}, the first "
        f"player up, the second down. Who brings it to an own end, {n} or 0, wins.",
        moves="A move is the number of squares.",
        code=CLASS.format(
            state="token",
            start=width,
            legal=f"list({steps})",
            change=f"        self.token = min({n}, max(0, self.token + action * mover))",
            ending=f"self.token in (0, {n}), int(self.token in (0, {n}))",
            board=f'"".join("T" if i == self.token else "-" for i in range({n + 1}))',
        ),
    )


FAMILIES: Mapping[str, Callable[[np.random.Generator], WrittenRules]] = {
    "take": draw_take,
    "heaps": draw_heaps,
    "race": draw_race,
    "row": draw_row,
    "tug": draw_tug,
}


def draw_rules(rng: np.random.Generator) -> WrittenRules:
    """A game of a family that is drawn."""
    families = list(FAMILIES.values())
    return families[int(rng.integers(len(families)))](rng)
