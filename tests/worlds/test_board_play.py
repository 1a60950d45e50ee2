"""Exact play on small boards: values that are known, and a policy that cannot be exploited."""

import asyncio
from functools import cache

import pytest
from palaestra.errors import UserError
from palaestra.run.exploitability import Exploitability
from palaestra.worlds.board_play import board_exact_play, lines_of, open_boards, ordered, winner_of
from palaestra.worlds.mnk import Mnk
from palaestra.worlds.tictactoe import TicTacToe

LINES = lines_of(3, 3, 3)


def uniform(squares):
    return lambda moves: {s: 1 / (squares - len(moves)) for s in range(squares) if s not in moves}


def test_tic_tac_toe_by_chance():
    """x wins 737/1260 and loses 363/1260; who knows wins 191/192 as x, and draws the rest."""
    found = board_exact_play(9, LINES, uniform(9))
    assert found["value"] == pytest.approx((737 - 363) / 1260)
    assert found["against_uniform"] == pytest.approx(0, abs=1e-12)
    first = lambda moves: best(moves) if len(moves) % 2 == 0 else uniform(9)(moves)
    assert board_exact_play(9, LINES, first)["value"] == pytest.approx(191 / 192)


def best(moves):
    """A best response to chance, by going through all games."""
    earned = {s: expected(ordered((*moves, s))) for s in uniform(9)(moves)}
    return {max(earned, key=earned.get): 1.0}


@cache
def expected(moves):
    """What x earns if it plays for that, and o by chance."""
    winner = winner_of(moves, LINES)
    if winner is not None or len(moves) == 9:
        return {0: 1, 1: -1, None: 0}[winner]
    after = [expected(ordered((*moves, s))) for s in range(9) if s not in moves]
    return max(after) if len(moves) % 2 == 0 else sum(after) / len(after)


def test_a_row_of_three_squares_by_hand():
    """Two of three in a row. By chance x opens in the middle (1/3) and wins; from an end (2/3) it wins if o takes
    the other end (1/2). Who knows wins as x, and as o takes the middle where x leaves it: -1/3."""
    found = board_exact_play(3, lines_of(3, 1, 2), uniform(3))
    assert found["value"] == pytest.approx(1 / 3 + 2 / 3 * 1 / 2)
    assert found["exploitability"] == pytest.approx((1 - 1 / 3) / 2)


@cache
def solved(moves):
    """What x earns where both play right, and a right move."""
    winner = winner_of(moves, LINES)
    if winner is not None or len(moves) == 9:
        return {0: 1, 1: -1, None: 0}[winner], None
    ends = {s: solved(ordered((*moves, s)))[0] for s in range(9) if s not in moves}
    square = (max if len(moves) % 2 == 0 else min)(ends, key=ends.get)
    return ends[square], square


def test_right_play_cannot_be_exploited():
    found = board_exact_play(9, LINES, lambda moves: {solved(moves)[1]: 1.0})
    assert found["exploitability"] == 0 and found["value"] == 0 and found["against_uniform"] > 0.9


def test_boards_are_counted_and_shown_once():
    assert len(open_boards(9, LINES)) == 4520  # 5,478 less 958 on which the game is over
    for world in (TicTacToe(), Mnk(3, 3, 3)):
        shown = world.situations()
        assert len(shown) == 4520
        table = {text: dict.fromkeys(words, 1 / len(words)) for text, (_, words) in shown.items()}
        assert world.exact_play(table)["value"] == pytest.approx(374 / 1260)
    with pytest.raises(UserError, match="too large"):
        Mnk(4, 4, 3).situations()


def test_a_model_is_read_on_every_board(context):
    """On three squares in a row: a word that is no free square is no move."""
    ctx = context(bench=None, task="mnk(columns=3,rows=1,line=2)")
    found = asyncio.run(Exploitability()(ctx))
    assert 0 <= found["exploitability"] <= 1 and -1 <= found["value"] <= 1 and 0 < found["illegal"] <= 1
