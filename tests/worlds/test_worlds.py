"""The synthetic worlds: oracles win, foul actions are outcomes, states are values."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from palaestra.tasks.procedural import split_of
from palaestra.toys.chain import ArithmeticChain
from palaestra.toys.grid import Grid, GridState, GridTasks
from palaestra.toys.hop import NOTHING, USAGE, Hop, HopTasks
from palaestra.toys.lake import Lake, LakeTasks
from palaestra.types import Act, Ask, Frame, Message, Task, rng_of
from palaestra.worlds.question import Question
from palaestra.worlds.tictactoe import Board, TicTacToe, TicTacToeTasks, completing_squares, draw_board, random_move

WORLDS = [
    (Hop(), HopTasks()),
    (Hop(turns=4), HopTasks(hops=(3, 3), entries=3)),
    (Hop(noise=0.5), HopTasks(hops=(1, 2))),
    (Grid(), GridTasks()),
    (Grid(turns=14), GridTasks(side=4, steps=14)),
    (Lake(), LakeTasks()),
]
each = pytest.mark.parametrize("world,tasks", WORLDS, ids=repr)


def acted(ask: Ask, text: str) -> tuple[Act, ...]:
    return (Act(ask=ask, text=text, call=None, finish="eos", n_tokens=len(text)),)


def played(world: Any, task: Task, choose: Callable[[Any], str]) -> Frame:
    frame = world.reset(task, ("key",))
    while frame.asks:
        frame = world.step(frame.state, acted(frame.asks[0], choose(frame.state)), ("key",))
    return frame


@each
def test_the_oracle_is_paid(world: Any, tasks: Any) -> None:
    for index in range(30):
        frame = played(world, tasks.task("test", index), world.oracle)
        assert frame.pay == {("policy", ""): 1.0}
        assert frame.status == "finished" and frame.facts["correct"]


@each
@pytest.mark.parametrize(
    "text", ["", "x", "drop", "ANSWER()", "answer(a1)", "ANSWER(a1) ANSWER(b2)", "up up", "SEARCH(a1", "²"]
)
def test_nonsense_is_an_outcome(world: Any, tasks: Any, text: str) -> None:
    frame = played(world, tasks.task("train", 0), lambda _: text)
    assert frame.pay == {("policy", ""): 0.0}
    assert frame.status == "truncated:turns"
    assert frame.facts.get("malformed", frame.facts.get("invalid")) == world.turns


@each
def test_tasks_repeat_and_splits_are_disjoint(world: Any, tasks: Any) -> None:
    train = {tasks.task("train", i).prompt[0].content for i in range(60)}
    test = {tasks.task("test", i).prompt[0].content for i in range(20)}
    assert not train & test and {split_of(q) for q in test} == {"test"}
    assert tasks.task("test", 4) == tasks.task("test", 4)


def test_hop_answers_searches() -> None:
    task = HopTasks(hops=(2, 2)).task("train", 0)
    start, middle, end = task.meta["path"]
    frame = Hop().reset(task, ())
    frame = Hop().step(frame.state, acted(frame.asks[0], f" SEARCH({start})\n"), ())
    assert [(m.role, m.content) for m in frame.asks[0].say] == [("tool", middle)]
    missing = Hop().step(frame.state, acted(frame.asks[0], "SEARCH(zz)"), ())
    assert missing.asks[0].say[0].content == USAGE
    free = next(f"a{i}" for i in range(10) if f"a{i}" not in task.meta["store"])
    assert Hop().step(frame.state, acted(frame.asks[0], f"SEARCH({free})"), ()).asks[0].say[0].content == NOTHING
    early = Hop().step(frame.state, acted(frame.asks[0], f"ANSWER({middle})"), ())
    assert early.pay == {("policy", ""): 0.0} and not early.facts["correct"]
    assert Hop().step(frame.state, acted(frame.asks[0], f"ANSWER({end})"), ()).pay == {("policy", ""): 1.0}
    assert Hop(malformed="end").step(frame.state, acted(frame.asks[0], "help"), ()).status == "finished"


def test_hop_with_noise_puts_another_key_before_the_value() -> None:
    task = HopTasks(hops=(2, 2)).task("train", 0)
    store, (key, value, _) = task.meta["store"], task.meta["path"]
    ask, start = Hop().reset(task, ()).asks[0], Hop().reset(task, ()).state

    def answer(noise: float, turn: int) -> list[str]:
        frame = Hop(noise=noise).step(start, acted(ask, f"SEARCH({key})"), ("world", turn))
        return frame.asks[0].say[0].content.split("\n")

    assert answer(0.0, 1) == [value]
    assert {tuple(answer(1.0, t)[1:]) for t in range(20)} == {(value,)}
    others = {answer(1.0, t)[0] for t in range(20)}
    assert len(others) > 1 and others <= store.keys() - {value}
    assert 30 < sum(len(answer(0.5, t)) == 2 for t in range(100)) < 70
    assert Hop(noise=1.0).step(start, acted(ask, "SEARCH(a0)" if "a0" not in store else "SEARCH(a1)"), ()).asks[
        0
    ].say == (Message(role="tool", content=NOTHING),)


def test_grid_distance_is_the_length_of_the_oracles_way() -> None:
    for index in range(20):
        task = GridTasks().task("train", index)
        assert played(Grid(), task, Grid().oracle).facts["turns"] == task.answer == task.meta["start"].distance


def test_grid_refuses_what_is_impossible() -> None:
    start = GridState(size=3, at=(0, 0), box=(1, 0), goal=(2, 2))
    for action in ("up", "left", "pick", "drop", "jump"):
        frame = Grid().step(start, acted(Ask(seat="policy"), action), ())
        assert frame.asks[0].say[0].content == f"cannot, {start}"
        assert frame.facts["invalid"] == 1 and frame.state_key == str(start)
        assert not Grid(invalid="end").step(start, acted(Ask(seat="policy"), action), ()).asks
    held = GridState(size=3, at=(1, 0), box=(1, 0), goal=(2, 2), holding=True)
    assert str(held) == "at b1 with box, goal c3" and held.distance == 4


def test_a_box_put_down_elsewhere_lies_there_unpaid_and_every_action_has_its_gain() -> None:
    """From a1 the way is 1 to the box at b1, pick, 3 to the goal at c3, drop: 6. Carried on, it is 4; put down at c1, again 4."""
    state = GridState(size=3, at=(0, 0), box=(1, 0), goal=(2, 2))
    assert state.distance == 6
    for action in ("right", "pick", "right", "drop", "up", "left"):
        frame = Grid().step(state, acted(Ask(seat="policy"), action), ())
        state = frame.state
        assert frame.asks and not frame.pay
    assert frame.state_key == "at b1, box c1, goal c3" and frame.facts["distance"] == 5
    assert frame.facts["closer"] == (1, 1, 1, -1, 0, -1)
    assert frame.facts["executed"] == (True, True, True, True, False, True)


def test_a_box_that_is_carried_onto_the_goal_is_not_dropped_there() -> None:
    carried = GridState(size=3, at=(2, 1), box=(1, 0), goal=(2, 2), holding=True)
    end = Grid(turns=1).step(carried, acted(Ask(seat="policy"), "down"), ())
    assert end.pay == {("policy", ""): 0.0} and end.status == "truncated:turns" and end.facts["distance"] == 1


def test_tasks_are_as_long_as_their_settings_say() -> None:
    ways = {GridTasks(steps=5).task("train", i).answer for i in range(60)}
    assert max(ways) == 5 and min(ways) >= 3  # a pick, a way of at least 1, a drop
    hops = {len(HopTasks(hops=(1, 3)).task("train", i).meta["path"]) - 1 for i in range(60)}
    assert hops == {1, 2, 3}
    plies = {len(TicTacToeTasks(plies=(1, 3)).task("train", i).meta["moves"]) for i in range(60)}
    assert plies == {1, 2, 3}


def test_hop_counts_what_was_done() -> None:
    task = HopTasks(hops=(2, 2)).task("train", 0)
    start, middle, _ = task.meta["path"]
    free = next(f"a{i}" for i in range(10) if f"a{i}" not in task.meta["store"])

    def after(*texts: str) -> Frame:
        frame = Hop().reset(task, ())
        for text in texts:
            frame = Hop().step(frame.state, acted(frame.asks[0], text), ())
        return frame

    there, back = after(f"SEARCH({start})", f"SEARCH({middle})"), after(f"SEARCH({middle})", f"SEARCH({start})")
    assert there.state_key == back.state_key == after(f"SEARCH({start})", f"SEARCH({middle})", "help").state_key
    facts = after(f"SEARCH({start})", "help", f"SEARCH({free})", f"SEARCH({start})").facts
    assert facts == {"turns": 4, "searches": 3, "malformed": 1, "executed": (True, False, False, True)}


def test_a_state_can_be_continued_twice() -> None:
    frame = Grid().reset(GridTasks().task("train", 2), ())
    action = Grid().oracle(frame.state)
    assert Grid().step(frame.state, acted(frame.asks[0], action), ()) == Grid().step(
        frame.state, acted(frame.asks[0], action), ()
    )


def test_a_question_ends_after_one_answer_and_pays_nothing() -> None:
    task = ArithmeticChain().task("train", 0)
    frame = Question().reset(task, ())
    assert frame.asks[0].say == task.prompt
    end = Question().step(frame.state, acted(frame.asks[0], "= 3"), ())
    assert (end.asks, end.pay, end.status) == ((), {}, "finished")


# ---- tic-tac-toe


@pytest.fixture(scope="module")
def game() -> TicTacToe:
    pytest.importorskip("pyspiel")
    return TicTacToe()


def test_boards_are_shown_to_the_seat_that_moves() -> None:
    assert draw_board((4, 0)) == "you are x\no12\n3x5\n678"
    assert completing_squares((0, 4, 1), 0) == [2]


def test_a_random_move_is_a_free_square() -> None:
    board = (Message(role="user", content=draw_board((4, 0, 8))),)
    assert {random_move(board, rng_of(("move", i))) for i in range(200)} == set("123567")


def test_lines_win(game: TicTacToe) -> None:
    end = game.step(Board(moves=(0, 3, 1, 4)), acted(Ask(seat="x"), "2"), ())
    assert end.pay == {("x", ""): 1.0, ("o", ""): -1.0} and end.facts["result"] == "x"
    end = game.step(Board(moves=(0, 3, 1, 4, 8)), acted(Ask(seat="o"), "5"), ())
    assert end.pay == {("x", ""): -1.0, ("o", ""): 1.0} and end.facts["result"] == "o"


def test_two_oracles_draw(game: TicTacToe) -> None:
    task = next(t for i in range(50) if not (t := TicTacToeTasks(plies=(1, 1)).task("train", i)).meta["moves"][1:])
    seats, frame = [], game.reset(task, ())
    while frame.asks:
        seats.append(frame.asks[0].seat)
        assert frame.asks[0].new_row
        frame = game.step(frame.state, acted(frame.asks[0], game.oracle(frame.state)), ())
    assert seats[:3] == ["o", "x", "o"]
    assert set(frame.pay.values()) in ({0.0}, {1.0, -1.0})


@pytest.mark.parametrize("text", ["4", "9", "", "a", "[3]", "3 5", "²", "-1", "resign"])
def test_an_illegal_move_forfeits(game: TicTacToe, text: str) -> None:
    end = game.step(Board(moves=(4,)), acted(Ask(seat="o"), text), ())
    assert end.pay == {("x", ""): 1.0, ("o", ""): -1.0}
    assert end.facts["result"] == "illegal:o" and end.facts["illegal:o"] == 1


def test_an_illegal_move_may_be_asked_for_again() -> None:
    pytest.importorskip("pyspiel")
    lenient, state = TicTacToe(illegal="again", retries=1), Board(moves=(4,))
    frame = lenient.step(state, acted(Ask(seat="o"), "4"), ())
    assert frame.asks[0].seat == "o" and frame.state.moves == (4,)
    assert lenient.step(frame.state, acted(frame.asks[0], "4"), ()).facts["result"] == "illegal:o"


def test_illegal_moves_are_counted_by_seat() -> None:
    pytest.importorskip("pyspiel")
    lenient = TicTacToe(illegal="again")
    for moves, before in (((4,), (1, 0)), ((4, 0), (0, 1))):
        frame = lenient.step(Board(moves=moves, illegal=before), acted(Ask(seat="x"), "4"), ())
        assert (frame.facts["illegal:x"], frame.facts["illegal:o"]) == (1, 1)


def test_nobody_has_won_an_opening() -> None:
    """Three squares are a line where their numbers in the magic square add up to 15."""
    magic = (2, 7, 6, 9, 5, 1, 4, 3, 8)
    for index in range(150):
        moves = TicTacToeTasks(plies=(6, 6)).task("train", index).meta["moves"]
        assert len(moves) == 6 and all(sum(magic[m] for m in moves[seat::2]) != 15 for seat in (0, 1))


def test_the_oracle_wins_before_it_blocks() -> None:
    assert TicTacToe().oracle(Board(moves=(0, 3, 1, 4))) == "2"  # o would win with 5
    assert TicTacToe().oracle(Board(moves=(0, 3, 8, 4))) == "5"  # nothing to win: o is blocked
