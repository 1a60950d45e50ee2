"""Exact play on a small board of m, n, k: a policy is a table of its moves on every board, and the best
response to it is found by going through all boards. Tic-tac-toe has 5,478 of them.

A board stands for all orders of the same stones: a seat is shown the board alone, each time anew.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import lru_cache
from typing import TypeAlias

import numpy as np

from palaestra.errors import UserError

BOARDS = 20_000  # at most; 3 x 3 has 4,520 on which somebody moves
Moves: TypeAlias = tuple[int, ...]
Lines: TypeAlias = tuple[Moves, ...]
Chances: TypeAlias = Mapping[int, float]  # p of each free square
Rule: TypeAlias = Callable[[Moves], Chances] | None  # of a seat; None = a best response


def ordered(moves: Moves) -> Moves:
    """The same stones in the order of their squares, still by turns."""
    seats = sorted(moves[0::2]), sorted(moves[1::2])
    return tuple(seats[i % 2][i // 2] for i in range(len(moves)))


@lru_cache(maxsize=32)
def lines_of(columns: int, rows: int, k: int) -> Lines:
    """Every line of k squares: along rows, columns and both diagonals."""
    return tuple(
        tuple((y + i * dy) * columns + x + i * dx for i in range(k))
        for y in range(rows)
        for x in range(columns)
        for dx, dy in ((1, 0), (0, 1), (1, 1), (-1, 1))
        if 0 <= x + (k - 1) * dx < columns and y + (k - 1) * dy < rows
    )


def winner_of(moves: Moves, lines: Lines) -> int | None:
    """The seat that has a whole line, 0 or 1; None = neither."""
    for seat in (0, 1):
        own = set(moves[seat::2])
        if any(own.issuperset(line) for line in lines):
            return seat
    return None


@lru_cache(maxsize=4)
def open_boards(squares: int, lines: Lines) -> tuple[Moves, ...]:
    """Every board on which somebody moves, fewer stones first.

    Raises UserError where there are more than BOARDS.
    """
    layer, boards = {()}, list[Moves]()
    while layer:
        boards += sorted(layer)
        after = {ordered((*b, s)) for b in layer for s in range(squares) if s not in b}
        layer = {b for b in after if len(b) < squares and winner_of(b, lines) is None}
        if len(boards) + len(layer) > BOARDS:
            raise UserError(f"a board of {squares} squares is too large to be gone through")
    return tuple(boards)


def board_exact_play(
    squares: int, lines: Lines, table: Callable[[Moves], Chances]
) -> dict[str, float]:
    """ "exploitability", "value" and "against_uniform" of a policy that sits in both seats in turn, in
    wins less losses.

        exploitability = (value of a best response to it as x + the same as o) / 2

    Uniform play of tic-tac-toe has the value 374/1260, and a best response to it wins 191/192 as x.
    """
    boards = open_boards(squares, lines)

    def uniform(moves: Moves) -> Chances:
        free = [s for s in range(squares) if s not in moves]
        return dict.fromkeys(free, 1 / len(free))

    def value(*seats: Rule) -> float:
        """What x earns, from the last boards to the first."""
        worth = dict[Moves, float]()
        for board in reversed(boards):
            mover, rule = len(board) % 2, seats[len(board) % 2]
            after = dict(_after(board, squares))
            for b in after.values():
                if b not in worth:
                    worth[b] = {0: 1.0, 1: -1.0, None: 0.0}[winner_of(b, lines)]
            earned = {s: worth[b] for s, b in after.items()}
            if rule is None:
                worth[board] = max(earned.values()) if mover == 0 else min(earned.values())
            else:
                worth[board] = sum(p * earned[s] for s, p in rule(board).items())
        return worth[()]

    best = value(None, table), -value(table, None)
    return {
        "exploitability": float(np.mean(best)),
        "value": value(table, table),
        "against_uniform": (value(table, uniform) - value(uniform, table)) / 2,
    }


def boards_shown(
    squares: int, lines: Lines, draw: Callable[[Moves], str], name: Callable[[int], str]
) -> dict[str, tuple[str, dict[int, str]]]:
    """By what its seat is shown, each board on which somebody moves: that, and the names of its free
    squares.
    """
    boards = dict[str, tuple[str, dict[int, str]]]()
    for board in open_boards(squares, lines):
        free = {s: name(s) for s in range(squares) if s not in board}
        text = draw(board)
        boards[text] = (text, free)
    return boards


def _after(board: Moves, squares: int) -> Iterator[tuple[int, Moves]]:
    return ((s, ordered((*board, s))) for s in range(squares) if s not in board)
