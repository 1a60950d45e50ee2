"""Games on a board of m columns and n rows, in which k stones in a row win: 3, 3, 3 is tic-tac-toe, 15,
15, 5 is gomoku (free-style: more than five win too). Two seats, x opens.

user: you are x, 3 in a row wins /   a b c / 3 . . . / 2 . o . / 1 x . .        assistant: c1

A board has 2n(n-k+1) + 2(n-k+1)^2 lines of k squares where m = n: 54 on 6 x 6 with k = 4, 572 in gomoku.
Squares are numbered from 0, row by row from the top; their names are a letter for the column and a
number for the row, counted from the bottom as in chess.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import fields, replace
from typing import Any, ClassVar, Literal

import numpy as np

from palaestra.declared import declare
from palaestra.errors import UserError
from palaestra.suggest import no_setting
from palaestra.tasks.procedural import draw_task, question_task
from palaestra.tasks.spec import parse_alone
from palaestra.types import Act, Ask, Frame, Key, Message, Task, need_at_least, stage, value_class
from palaestra.worlds.adapters.base import last_named
from palaestra.worlds.board_play import board_exact_play, boards_shown, lines_of, winner_of

SEATS = ("x", "o")  # x opens
ILLEGAL = ("forfeit", "again", "never")
LETTERS = "abcdefghijklmnopqrstuvwxyz"
NEAR = 2  # how far a candidate is from a stone at most
ROW = re.compile(r"^ *(\d+) ((?:[.xo] ?)+)$", re.MULTILINE)
HEAD = re.compile(r"you are ([xo]), (\d+) in a row")


@value_class
class Board:
    """The moves so far, as squares from 0: x made the first, o the second, and so on."""

    moves: tuple[int, ...] = ()
    illegal: tuple[int, int] = (0, 0)  # attempts, by seat


def completing(moves: tuple[int, ...], seat: int, lines: Sequence[tuple[int, ...]]) -> list[int]:
    """The free squares that complete a line of a seat, in order."""
    own, stones = set(moves[seat::2]), set(moves)
    free = (set(line) - own for line in lines)
    return sorted({i for rest in free if len(rest) == 1 for i in rest if i not in stones})


def best_square(moves: tuple[int, ...], squares: int, lines: Sequence[tuple[int, ...]]) -> int:
    """The rule-based player: wins if it can, else blocks, else takes the square whose lines promise
    most. A line that only one seat has stones in promises 4 to the power of their number.
    """
    mover = len(moves) % 2
    for seat in (mover, 1 - mover):
        if urgent := completing(moves, seat, lines):
            return urgent[0]
    sides = [set(moves[mover::2]), set(moves[1 - mover :: 2])]
    worth = np.zeros(squares)
    for line in lines:
        stones = [len(side.intersection(line)) for side in sides]
        if min(stones) == 0:
            worth[list(line)] += 4.0 ** max(stones)
    worth[list(moves)] = -1.0
    return int(worth.argmax())


@declare(columns=(("moves", tuple, "the moves that were made before"),))
@stage
class MnkTasks:
    """Openings of random moves after which nobody has won; 0 plies is the empty board."""

    columns: int = 5
    rows: int = 5
    line: int = 4
    plies: tuple[int, int] = (0, 3)  # at least, at most
    name: str = "mnk"
    size: int | None = None

    def task(self, split: str, index: int) -> Task:
        return draw_task(self, split, index, self._draw)

    def _draw(self, rng: np.random.Generator) -> Task:
        world = Mnk(self.columns, self.rows, self.line)
        most = min(self.plies[1], world.squares - 1)
        while True:
            n = int(rng.integers(min(self.plies[0], most), most + 1))
            moves = tuple(int(m) for m in rng.permutation(world.squares)[:n])
            if winner_of(moves, world.lines) is None:
                return question_task(self.name, world.draw(moves), None, {"moves": moves})


@declare(
    facts=(
        ("plies", int, "moves of the game"),
        ("illegal:x", int, "illegal moves of x"),
        ("illegal:o", int, "illegal moves of o"),
        "result",
    )
)
@stage
class Mnk:
    """Pays the winner 1, the loser -1, a draw 0. The square that a reply names last is its move. A
    reply that names none, or a taken one, forfeits the game, or is asked for again `retries` times,
    or cannot be said ("never").
    """

    columns: int = 5
    rows: int = 5
    line: int = 4
    illegal: Literal["forfeit", "again", "never"] = "forfeit"
    retries: int = 2
    seats: tuple[str, ...] = SEATS
    bounds: ClassVar[tuple[float, float]] = (-1.0, 1.0)

    def __post_init__(self) -> None:
        need_at_least(self, columns=1, rows=1, line=1)
        if max(self.columns, self.rows) > len(LETTERS):
            raise UserError(f"a board has at most {len(LETTERS)} columns and rows")
        if not self.lines:
            raise UserError(
                f"no line of {self.line} fits on {self.columns} x {self.rows} squares; take a larger "
                "board, or a smaller line"
            )

    @property
    def squares(self) -> int:
        return self.columns * self.rows

    @property
    def most_turns(self) -> int:
        """Replies of a game, refused ones included."""
        return self.squares + 2 * self.retries + 1

    @property
    def lines(self) -> tuple[tuple[int, ...], ...]:
        return lines_of(self.columns, self.rows, self.line)

    def reset(self, task: Task, key: Key) -> Frame:
        return self._go_on(Board(moves=tuple(task.meta.get("moves", ()))))

    def step(self, state: Board, acts: tuple[Act, ...], key: Key) -> Frame:
        mover = len(state.moves) % 2
        names = [self.name_of(i) for i in range(self.squares)]
        named = last_named(acts[0].text, names)
        if named is not None and named in self.legal(state):
            return self._go_on(replace(state, moves=(*state.moves, names.index(named))))
        count = state.illegal[mover] + 1
        illegal = (count, state.illegal[1]) if mover == 0 else (state.illegal[0], count)
        state = replace(state, illegal=illegal)
        if self.illegal == "again" and count <= self.retries:
            return self._ask(state)
        return self._end(state, {mover: -1.0, 1 - mover: 1.0}, f"illegal:{SEATS[mover]}")

    def legal(self, state: Board) -> tuple[str, ...]:
        """The free squares."""
        return tuple(self.name_of(i) for i in range(self.squares) if i not in state.moves)

    def candidates(self, state: Board) -> tuple[str, ...]:
        """The free squares within `NEAR` of a stone, of an empty board the middle."""
        spots = [divmod(i, self.columns) for i in state.moves]
        if not spots:
            return (self.name_of(self.rows // 2 * self.columns + self.columns // 2),)
        near = lambda i: any(
            max(abs(i // self.columns - y), abs(i % self.columns - x)) <= NEAR for y, x in spots
        )
        squares = (i for i in range(self.squares) if i not in state.moves and near(i))
        return tuple(self.name_of(i) for i in squares) or self.legal(state)

    def oracle(self, state: Board) -> str:
        """The move of the rule-based player."""
        return self.name_of(best_square(state.moves, self.squares, self.lines))

    def name_of(self, square: int) -> str:
        y, x = divmod(square, self.columns)
        return f"{LETTERS[x]}{self.rows - y}"

    def draw(self, moves: tuple[int, ...]) -> str:
        """What the seat to move sees."""
        cells = [SEATS[moves.index(i) % 2] if i in moves else "." for i in range(self.squares)]
        width = len(str(self.rows))
        rows = [
            f"{self.rows - y:>{width}} {' '.join(cells[y * self.columns : (y + 1) * self.columns])}"
            for y in range(self.rows)
        ]
        head = f"you are {SEATS[len(moves) % 2]}, {self.line} in a row wins"
        return "\n".join([head, f"{'':>{width}} {' '.join(LETTERS[: self.columns])}", *rows])

    def situations(self) -> Mapping[str, tuple[str, Mapping[int, str]]]:
        """By board as it is shown: that, and the names of its free squares."""
        return boards_shown(self.squares, self.lines, self.draw, self.name_of)

    def exact_play(self, table: Mapping[str, Mapping[int, float]]) -> dict[str, float]:
        """See `board_exact_play`; raises UserError for a board that is too large."""
        return board_exact_play(self.squares, self.lines, lambda moves: table[self.draw(moves)])

    def _go_on(self, state: Board) -> Frame:
        """The next question, or the end."""
        winner = winner_of(state.moves, self.lines)
        if winner is not None:
            return self._end(state, {winner: 1.0, 1 - winner: -1.0}, SEATS[winner])
        full = len(state.moves) == self.squares
        return self._end(state, {0: 0.0, 1: 0.0}, "draw") if full else self._ask(state)

    def _ask(self, state: Board) -> Frame:
        say = (Message(role="user", content=self.draw(state.moves)),)
        choices = self.legal(state) if self.illegal == "never" else None
        ask = Ask(seat=SEATS[len(state.moves) % 2], say=say, new_row=True, choices=choices)
        return Frame(state=state, asks=(ask,), facts=facts_of(state), state_key=say[0].content)

    def _end(self, state: Board, rewards: dict[int, float], result: str) -> Frame:
        return Frame(
            state=state,
            pay={(SEATS[seat], ""): r for seat, r in rewards.items()},
            facts=facts_of(state) | {"result": result},
            state_key=self.draw(state.moves),
        )


def facts_of(state: Board) -> dict[str, Any]:
    """What is told of a board."""
    return {"plies": len(state.moves), "illegal:x": state.illegal[0], "illegal:o": state.illegal[1]}


def read_board(text: str) -> tuple[int, int, int, tuple[int, ...]]:
    """Columns, rows, line and moves of a board as it is shown; the order within a seat is lost.

    Raises UserError for a text without a board.
    """
    head, board_rows = HEAD.search(text), [m[2].split() for m in ROW.finditer(text)]
    if head is None or not board_rows:
        raise UserError(f"no board of m, n, k is shown in {text[:60]!r}")
    cells = [c for row in board_rows for c in row]
    stones = [[i for i, c in enumerate(cells) if c == seat] for seat in SEATS]
    count = sum(map(len, stones))
    moves = tuple(stones[i % 2][i // 2] for i in range(count))
    return len(board_rows[0]), len(board_rows), int(head[2]), moves


def rule_move(messages: Sequence[Message], rng: np.random.Generator) -> str:
    """The rule-based player as an opponent, from the board that was last shown."""
    columns, rows, line, moves = read_board(messages[-1].content)
    world = Mnk(columns, rows, line)
    return world.name_of(best_square(moves, world.squares, world.lines))


def weak_move(messages: Sequence[Message], rng: np.random.Generator) -> str:
    """The rule-based player in half of its moves, a random free square in the others."""
    if rng.random() < 0.5:
        return rule_move(messages, rng)
    columns, rows, line, moves = read_board(messages[-1].content)
    return str(rng.choice(Mnk(columns, rows, line).legal(Board(moves=moves))))


def board_by_name(spec: str) -> tuple[MnkTasks, Mnk]:
    """The world of `mnk(columns=N,rows=N,line=N,illegal=again,...)`, and its openings. Raises
    UserError for other settings.
    """
    form = "mnk(columns=N,rows=N,line=N)"
    given = parse_alone(spec, form).settings
    takes = [f.name for f in fields(Mnk) if f.name != "seats"]
    for key, value in given.items():
        if key not in takes:
            raise UserError(no_setting("mnk", key, takes))
        good = value in ILLEGAL if key == "illegal" else type(value) is int
        if not good:
            ways = ", ".join(ILLEGAL) if key == "illegal" else "a whole number"
            raise UserError(f"{spec}: {key} is {value!r}; it takes {ways}")
    world = Mnk(**given)
    sizes = {k: getattr(world, k) for k in ("columns", "rows", "line")}
    return MnkTasks(**sizes, name=spec), world
