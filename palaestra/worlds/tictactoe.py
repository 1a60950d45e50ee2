"""Tic-tac-toe for two seats: the rules are those of `palaestra.worlds.mnk` with 3, 3, 3, and the board
is shown with the numbers of its free squares.

user: you are x / o1x / 3x5 / 678        4 would be taken; 6 wins        assistant: 6
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import ClassVar, Literal

import numpy as np

from palaestra.declared import declare
from palaestra.tasks.procedural import draw_task, question_task
from palaestra.types import Act, Ask, Frame, Key, Message, Task, stage
from palaestra.worlds.board_play import board_exact_play, boards_shown, lines_of, winner_of
from palaestra.worlds.mnk import SEATS, Board, completing, facts_of

SQUARE = re.compile("[0-8]")
LINES = lines_of(3, 3, 3)


def draw_board(moves: tuple[int, ...]) -> str:
    """What the seat to move sees; free squares show their number."""
    cells = [SEATS[moves.index(i) % 2] if i in moves else str(i) for i in range(9)]
    rows = ["".join(cells[i : i + 3]) for i in (0, 3, 6)]
    return "\n".join([f"you are {SEATS[len(moves) % 2]}", *rows])


def completing_squares(moves: tuple[int, ...], seat: int) -> list[int]:
    """The free squares that complete a line of a seat."""
    return completing(moves, seat, LINES)


def random_move(messages: Sequence[Message], rng: np.random.Generator) -> str:
    """A free square of the board that was last shown: an opponent that plays by the rules and no
    more.
    """
    board = messages[-1].content.partition("\n")[2]
    return str(rng.choice([c for c in board if c.isdigit()]))


@declare(columns=(("moves", tuple, "the moves that were made before"),))
@stage
class TicTacToeTasks:
    """Openings of random moves after which nobody has won; 0 plies is the empty board."""

    plies: tuple[int, int] = (0, 3)  # at least, at most
    name: str = "tictactoe"
    size: int | None = None

    def task(self, split: str, index: int) -> Task:
        return draw_task(self, split, index, self._draw)

    def _draw(self, rng: np.random.Generator) -> Task:
        while True:
            n = int(rng.integers(self.plies[0], self.plies[1] + 1))
            moves = tuple(int(m) for m in rng.permutation(9)[:n])
            if winner_of(moves, LINES) is None:
                return question_task(self.name, draw_board(moves), None, {"moves": moves})


@declare(
    facts=(
        ("plies", int, "moves of the game"),
        ("illegal:x", int, "illegal moves of x"),
        ("illegal:o", int, "illegal moves of o"),
        "result",
    )
)
@stage
class TicTacToe:
    """Pays the winner 1, the loser -1, a draw 0. An illegal reply forfeits, or is asked for again
    `retries` times, or cannot be said ("never").
    """

    illegal: Literal["forfeit", "again", "never"] = "forfeit"
    retries: int = 2
    seats: tuple[str, ...] = SEATS
    bounds: ClassVar[tuple[float, float]] = (-1.0, 1.0)

    def reset(self, task: Task, key: Key) -> Frame:
        return self._ask(Board(moves=tuple(task.meta.get("moves", ()))))

    def step(self, state: Board, acts: tuple[Act, ...], key: Key) -> Frame:
        text, mover = acts[0].text.strip(), len(state.moves) % 2
        if not SQUARE.fullmatch(text) or text not in self.legal(state):
            count = state.illegal[mover] + 1
            state = replace(
                state,
                illegal=(count, state.illegal[1]) if mover == 0 else (state.illegal[0], count),
            )
            if self.illegal == "again" and count <= self.retries:
                return self._ask(state)
            return self._end(state, {mover: -1.0, 1 - mover: 1.0}, f"illegal:{SEATS[mover]}")
        state = replace(state, moves=(*state.moves, int(text)))
        winner = winner_of(state.moves, LINES)
        if winner is not None:
            return self._end(state, {winner: 1.0, 1 - winner: -1.0}, SEATS[winner])
        full = len(state.moves) == 9
        return self._end(state, {0: 0.0, 1: 0.0}, "draw") if full else self._ask(state)

    def legal(self, state: Board) -> tuple[str, ...]:
        """The free squares."""
        return tuple(str(i) for i in range(9) if i not in state.moves)

    def oracle(self, state: Board) -> str:
        """Wins if it can, else blocks, else takes the best free square."""
        mover = len(state.moves) % 2
        free = [i for i in (4, 0, 2, 6, 8, 1, 3, 5, 7) if i not in state.moves]
        return str(
            [
                *completing_squares(state.moves, mover),
                *completing_squares(state.moves, 1 - mover),
                *free,
            ][0]
        )

    def situations(self) -> Mapping[str, tuple[str, Mapping[int, str]]]:
        """By board as it is shown: that, and the numbers of its free squares."""
        return boards_shown(9, LINES, draw_board, str)

    def exact_play(self, table: Mapping[str, Mapping[int, float]]) -> dict[str, float]:
        """See `board_exact_play`."""
        return board_exact_play(9, LINES, lambda moves: table[draw_board(moves)])

    def _ask(self, state: Board) -> Frame:
        say = (Message(role="user", content=draw_board(state.moves)),)
        choices = self.legal(state) if self.illegal == "never" else None
        ask = Ask(seat=SEATS[len(state.moves) % 2], say=say, new_row=True, choices=choices)
        return Frame(
            state=state, asks=(ask,), facts=facts_of(state), state_key=draw_board(state.moves)
        )

    def _end(self, state: Board, rewards: dict[int, float], result: str) -> Frame:
        pay = {(SEATS[seat], ""): r for seat, r in rewards.items()}
        return Frame(
            state=state,
            pay=pay,
            facts=facts_of(state) | {"result": result},
            state_key=draw_board(state.moves),
        )
