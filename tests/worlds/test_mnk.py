"""Boards on which k in a row win: counts of lines and boards, rules, what is shown, and the rule-based player."""

import asyncio

import numpy as np
import palaestra as pl
import pytest
from palaestra.errors import UserError
from palaestra.rollout.play import play
from palaestra.rollout.player import Script
from palaestra.run.benches import bench_by_name
from palaestra.types import Message, Task
from palaestra.worlds.candidates import Candidates
from palaestra.worlds.mnk import Board, Mnk, best_square, board_by_name, lines_of, read_board, rule_move, winner_of


def boards_of(world):
    """Every board that legal play reaches, by its stones."""
    seen, left = set(), [()]
    while left:
        moves = left.pop()
        board = (frozenset(moves[::2]), frozenset(moves[1::2]))
        if board not in seen:
            seen.add(board)
            if winner_of(moves, world.lines) is None:
                left += [(*moves, i) for i in range(world.squares) if i not in moves]
    return seen


def game(world, *words, start=()):
    left = list(words)
    cast = {seat: Script(fn=lambda messages, rng: left.pop(0)) for seat in world.seats}
    return asyncio.run(play(world, cast, Task(id="t", meta={"moves": start}), ("k",), ("w",)))


@pytest.mark.parametrize(("n", "k", "count"), [(3, 3, 8), (6, 4, 54), (9, 5, 140), (15, 5, 572)])
def test_the_number_of_lines(n, k, count):
    lines = lines_of(n, n, k)
    assert len(lines) == len(set(lines)) == count == 2 * n * (n - k + 1) + 2 * (n - k + 1) ** 2


def test_tic_tac_toe_has_5478_boards():
    boards = boards_of(Mnk(3, 3, 3))
    assert len(boards) == 5478
    won = [b for b in boards if any(s.issuperset(line) for s in b for line in lines_of(3, 3, 3))]
    assert len(won) == 942  # 626 of x, 316 of o
    assert sum(not (set(range(9)) - x - o) for x, o in boards) == 78  # 62 won by the last move, 16 drawn


def test_open_spiel_agrees_on_random_games():
    spiel = pytest.importorskip("pyspiel").load_game("tic_tac_toe")
    rng = np.random.default_rng(0)
    for _ in range(50):
        state, moves = spiel.new_initial_state(), ()
        while not state.is_terminal():
            assert winner_of(moves, lines_of(3, 3, 3)) is None
            moves = (*moves, int(rng.choice(state.legal_actions())))
            state.apply_action(moves[-1])
        winner = winner_of(moves, lines_of(3, 3, 3))
        assert state.returns() == ([0, 0] if winner is None else [1 - 2 * winner, 2 * winner - 1])


def test_what_a_turn_shows_and_how_it_is_read_back():
    world = Mnk(4, 3, 3)
    text = world.draw((8, 5, 3))
    assert text == "you are o, 3 in a row wins\n  a b c d\n3 . . . x\n2 . o . .\n1 x . . ."
    assert read_board(f"{text}\nReply.") == (4, 3, 3, (3, 5, 8))
    wide = Mnk(15, 15, 5)
    assert read_board(wide.draw((0, 224))) == (15, 15, 5, (0, 224))
    with pytest.raises(UserError, match="no board"):
        read_board("2 + 2")


def test_who_wins_and_what_is_paid():
    world = Mnk(3, 3, 3)
    won = game(world, "a1", "a2", "b1", "I block with b2.", "C1")
    assert (
        won.reward.parts == {"seat:x": 1.0, "seat:o": -1.0} and won.facts["result"] == "x" and won.facts["plies"] == 5
    )
    lost = game(world, "a1", "a1")
    assert lost.reward.parts == {"seat:x": 1.0, "seat:o": -1.0} and lost.facts["result"] == "illegal:o"
    again = game(Mnk(3, 3, 3, illegal="again"), "z9", "", "c9")
    assert again.facts["illegal:x"] == 3 and again.reward.parts["seat:x"] == -1.0
    full = game(world, "a3", "b3", "c3", "b2", "a2", "c2", "b1", "a1", "c1")
    assert full.facts["result"] == "draw" and full.reward.parts == {"seat:x": 0.0, "seat:o": 0.0}


def test_more_than_k_in_a_row_win_too():
    world = Mnk(5, 1, 3)
    assert winner_of((0, 2, 1, 4, 3), world.lines) is None and winner_of((0, 9, 1, 9, 3, 9, 4, 9, 2), world.lines) == 0


def test_the_rule_player_wins_then_blocks_then_takes_the_middle():
    lines = lines_of(3, 3, 3)
    assert best_square((), 9, lines) == 4
    assert best_square((0, 4, 1, 3), 9, lines) == 2  # its own third before the block at 5
    assert best_square((0, 4, 1), 9, lines) == 2  # o blocks
    text = Mnk(3, 3, 3).draw((0, 4, 1))
    assert rule_move((Message(role="user", content=text),), np.random.default_rng(0)) == "c3"


def test_the_rule_player_never_loses_as_first_of_tic_tac_toe_to_chance():
    found = pl.games.play("mnk(columns=3,rows=3,line=3)", [f"{pl.worlds.__path__[0]}/mnk.py:rule_move", "random"], n=20)
    assert found["pay"]["x"] > 0.5


def test_candidates_are_near_a_stone():
    world = Mnk(9, 9, 5)
    assert world.candidates(Board()) == ("e5",)
    near = world.candidates(Board(moves=(0,)))
    assert set(near) == {"b9", "c9", "a8", "b8", "c8", "a7", "b7", "c7"}
    assert len(world.candidates(Board(moves=(40, 41)))) == 5 * 6 - 2


def test_openings_have_no_winner_and_the_size_of_the_board():
    tasks, world = board_by_name("mnk(columns=3,rows=2,line=2)")
    drawn = [tasks.task("train", i).meta["moves"] for i in range(40)]
    assert {len(m) for m in drawn} == {0, 1, 2, 3} and all(winner_of(m, world.lines) is None for m in drawn)


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ("mnk(columns=2,rows=2,line=3)", "no line of 3 fits on 2 x 2"),
        ("mnk(cols=3)", "columns"),
        ("mnk(columns=x)", "takes a whole number"),
        ("mnk(illegal=often)", "takes forfeit, again, never"),
        ("mnk(columns=27)", "at most 26"),
        ("mnk(line=0)", "line"),
    ],
)
def test_a_board_that_cannot_be_is_refused(spec, message):
    with pytest.raises(UserError, match=message):
        bench_by_name(spec)


def test_a_turn_offers_each_strategy_with_each_candidate_and_the_game_hears_the_move():
    world = Candidates(Mnk(3, 3, 3), ("attack", "block"), "Choose.")
    frame = asyncio.run(world.reset(Task(id="t", meta={"moves": (0,)}), ("k",)))
    (ask,) = frame.asks
    assert ask.choices[:2] == ("attack b3", "attack c3") and len(ask.choices) == 16
    assert ask.say[-1].content.endswith("1 . . .\nChoose.")
    played = game(world, "block b3", "attack b2", "block c3", "attack c1", start=(0,))
    assert played.facts["illegal:x"] == played.facts["illegal:o"] == 0
    with pytest.raises(UserError, match="takes one of"):
        game(world, "block a3", start=(0,))


def test_a_world_without_a_list_has_no_candidates():
    class Silent:
        seats = ("x",)

        def reset(self, task, key):
            return pl.Frame(state=None, asks=(pl.Ask(seat="x"),))

    with pytest.raises(UserError, match="give its class a method legal"):
        asyncio.run(Candidates(Silent()).reset(Task(id="t"), ("k",)))
