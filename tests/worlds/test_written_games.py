"""Written games: the search and the solver by hand and by known values, verdicts on bad games, and play in the sandbox."""

import asyncio
import json
import random
from dataclasses import replace

import numpy as np
import palaestra as pl
import pytest
from palaestra.errors import Fault, UserError
from palaestra.run.benches import bench_by_name
from palaestra.services.sandbox import Ran
from palaestra.types import Act, Ask
from palaestra.worlds.written import sandboxed
from palaestra.worlds.written.files import read_games
from palaestra.worlds.written.game import move_of
from palaestra.worlds.written.grammar import FAMILIES, draw_rules
from palaestra.worlds.written.inside import (
    Broken,
    Unsolved,
    begin,
    best_moves,
    check_first_move,
    check_repeats,
    replay,
    search_move,
    skilled_wins,
    solve,
    ucb1,
)
from palaestra.worlds.written.sandboxed import GameVerdict, examine_game, random_points, view_game


class Take:
    """A heap of `n` stones; who takes the last one wins, or loses."""

    n, steps, lose, loser_pay = 7, (1, 2, 3), False, -1

    def __init__(self):
        self.reset()

    def reset(self, seed=None, options=None):
        self.stones, self.current_player = self.n, 1
        return self.stones, {}

    def valid_moves(self):
        return [s for s in self.steps if s <= self.stones]

    def step(self, action):
        self.stones -= action
        self.current_player *= -1
        over = self.stones == 0
        return self.stones, (self.loser_pay if self.lose else 1) * over, over, False, {}

    def render(self):
        return f"stones {self.stones}"


def take(**fields):
    return type("Game", (Take,), fields)


class TicTacToe:
    """Without `current_player`, and with the four values of an older step."""

    def reset(self):
        self.cells = [0] * 9

    def valid_moves(self):
        return [i for i in range(9) if not self.cells[i]]

    def step(self, action):
        mover = 1 if self.cells.count(0) % 2 else 2
        self.cells[action] = mover
        lines = ("012", "345", "678", "036", "147", "258", "048", "246")
        won = any(all(self.cells[int(i)] == mover for i in line) for line in lines)
        return self.cells, float(won), won or 0 not in self.cells, {}

    def render(self):
        return str(self.cells)


def test_the_bound_of_the_catalogue():
    """3 wins of 5 visits under a parent of 20: 0.6 + 1.4 sqrt(ln 20 / 5) = 1.683664."""
    assert ucb1(3, 5, 20) == pytest.approx(1.683664, abs=1e-6)


@pytest.mark.parametrize("seed", range(3))
def test_the_search_finds_a_win_in_one_and_leaves_none(seed):
    """With 3 stones the winning move takes all; with 5 it leaves 4. A search with the sign turned takes others."""
    rng = random.Random(seed)
    assert search_move(begin(take(n=3), 0), 60, rng) == 3
    assert search_move(begin(take(n=5), 0), 300, rng) == 1
    assert search_move(begin(take(n=6), 0), 300, rng) == 2


def test_the_search_without_iterations_is_random():
    moves = [search_move(begin(take(n=3), 0), 0, random.Random(i)) for i in range(60)]
    assert set(moves) == {1, 2, 3}


def test_exact_values():
    """Of n stones with 1 to 3: lost for n = 4, 8; who may not take the last loses at 1, 5. Tic-tac-toe is drawn."""
    assert [solve(begin(take(n=n), 0), 99) for n in range(1, 9)] == [1, 1, 1, -1, 1, 1, 1, -1]
    assert [solve(begin(take(n=n, lose=True), 0), 99) for n in range(1, 6)] == [-1, 1, 1, 1, -1]
    assert best_moves(begin(take(n=7), 0), 99) == [3]
    assert solve(replay(TicTacToe, [0]), 6000) == 0  # a corner is answered by the middle
    with pytest.raises(Unsolved):
        solve(begin(TicTacToe, 0), 100)
    assert best_moves(replay(TicTacToe, [0, 3, 1, 4]), 6000) == [2]


def test_a_game_that_goes_round_is_not_solved():
    class Round(Take):
        n, steps = 3, (0,)

    with pytest.raises(Unsolved):
        solve(begin(Round, 0), 99)


def test_a_player_may_have_two_turns_in_a_row():
    """Who takes 1 has another turn: with 2 stones who opens takes both."""

    class Again(Take):
        n, steps = 2, (1,)

        def step(self, action):
            made = super().step(action)
            self.current_player *= -1
            return made

    position = replay(Again, [1, 1])
    assert (position.done, position.winner) == (True, 0)
    assert solve(begin(Again, 0), 99) == 1


def test_who_wins_by_reward():
    assert replay(take(n=1), [1]).winner == 0
    assert replay(take(n=1, lose=True), [1]).winner == 1
    assert replay(take(n=1, lose=True, loser_pay=0), [1]).winner is None
    with pytest.raises(Broken, match="paid -10 as illegal"):
        replay(take(n=1, lose=True, loser_pay=-10), [1])


def test_first_moves_that_decide():
    with pytest.raises(Broken, match="move 3 wins at once") as at_once:
        check_first_move(begin(take(n=3), 0), 0.5)
    assert at_once.value.verdict == "first move"
    check_first_move(begin(take(n=4), 0), 0.5)
    with pytest.raises(Broken, match="who opens wins 95%"):
        check_first_move(begin(take(n=4), 0), 0.95)
    with pytest.raises(Broken, match="who opens wins 5%"):
        check_first_move(begin(take(n=4), 0), 0.05)


def test_chance_is_noticed():
    class Dice(Take):
        def reset(self, seed=None, options=None):
            self.stones, self.current_player = 3 + (seed or 0) % 2, 1

    with pytest.raises(Broken) as chance:
        check_repeats(Dice, [1, 1], replay(Dice, [1, 1]))
    assert chance.value.verdict == "chance"
    check_repeats(Take, [1, 1], replay(Take, [1, 1]))


def test_a_search_is_no_better_where_moves_do_not_matter():
    ask = {"seed": 0, "skill": 10, "iterations": 30}
    assert skilled_wins(take(n=6, steps=(1,)), ask) == 0.5  # the same seat wins each game
    assert skilled_wins(take(n=9), ask) >= 0.8


HANGS = "while True: pass"
BAD = {
    "crash": ["import sys\nsys.exit(3)", "x = (", "import os\nos._exit(0)", "", "print('@@' * 99)\nraise ValueError"],
    "malformed": ["class A:\n    def reset(self): pass"],
}


def test_bad_games_have_verdicts():
    """Everything that a game does wrong is said of the game, and nothing of it is run here."""
    for word, codes in BAD.items():
        for code in codes:
            said = asyncio.run(view_game(code, [], -1, 0, 0, "0"))
            assert isinstance(said, GameVerdict), code
            assert said.verdict == ("malformed" if code == "" else word), code
    read = lambda x: x
    said = asyncio.run(sandboxed.ask_game(HANGS, "view", read, 0.3, actions=[], rival=-1, iterations=0, seed="0"))
    assert said.verdict == "timeout"
    assert asyncio.run(sandboxed.ask_game(draw_code("take"), "view", lambda x: x["nothing"], 5.0, actions=[],
                                          rival=-1, iterations=0, seed="0")).verdict == "crash"  # fmt: skip


def test_a_machine_without_a_sandbox_is_a_fault(monkeypatch):
    monkeypatch.setattr(sandboxed, "run_program", lambda *_: Ran(status="refused", stderr="no bubblewrap"))
    with pytest.raises(Fault, match="no bubblewrap"):
        asyncio.run(view_game(HANGS, [], -1, 0, 0, "0"))


def draw_code(family, seed=0):
    return FAMILIES[family](np.random.default_rng(seed)).code


ENDLESS = """
import gymnasium as gym
import numpy as np
from gymnasium import spaces

class CustomEnv(gym.Env):
    def __init__(self):
        super().__init__()
        self.action_space = spaces.Discrete(2)
        self.observation_space = spaces.Box(low=0, high=1, shape=(1,), dtype=np.float32)
        self.reset()
    def reset(self, seed=None, options=None):
        super().reset(seed=seed)
        self.state = np.zeros(1)
        return self.state, {}
    def step(self, action):
        return self.state, 0, False, False, {}
    def render(self):
        return "the same"
    def valid_moves(self):
        return [0, 1]
"""


def test_games_are_examined():
    """A game with gymnasium's form has no end; of 4 stones with 1 to 3 who replies wins."""
    said = asyncio.run(examine_game(ENDLESS))
    assert isinstance(said, GameVerdict) and said.verdict == "endless"
    good = asyncio.run(examine_game(TAKE.replace("HEAP", "8")))
    assert good.value == -1 and good.skill >= 0.6 and 0.1 <= good.opener <= 0.9
    assert asyncio.run(examine_game(TAKE.replace("HEAP", "3"))).verdict == "first move"


TAKE = """
class CustomEnv:
    def reset(self, seed=None, options=None):
        self.stones, self.current_player = HEAP, 1
    def valid_moves(self):
        return [s for s in (1, 2, 3) if s <= self.stones]
    def step(self, action):
        self.stones -= action
        self.current_player *= -1
        return None, int(self.stones == 0), self.stones == 0, False, {}
    def render(self):
        return f"stones {self.stones}"
"""


def test_random_moves_lose_against_the_opponent():
    """With 8 stones perfect play wins for who replies: random moves win few games, and half among themselves."""
    code = TAKE.replace("HEAP", "8")
    search, exact, none = (
        asyncio.run(random_points(code, 20, n, states, "a")) for n, states in ((50, 0), (0, 500), (0, 0))
    )
    assert sum(search) <= 5 and sum(exact) <= 5 and 5 < sum(none) < 15
    assert none == asyncio.run(random_points(code, 20, 0, 0, "a"))


# ---- the world


def game(n=8):
    return pl.worlds.WrittenRules(
        title=f"take {n}", rules="Take 1, 2 or 3.", moves="Stones.", code=TAKE.replace("HEAP", str(n))
    )


def task(n=8, second=0):
    return pl.worlds.WrittenGameTasks().task_of(game(n), "t", second)


def say(world, frame, text):
    ask = frame.asks[0]
    return asyncio.run(world.step(frame.state, (Act(ask=ask, text=text, call=None, finish="eos", n_tokens=1),), ("k",)))


def test_a_game_of_two_seats():
    world = pl.worlds.WrittenGame()
    frame = asyncio.run(world.reset(task(), ("k",)))
    assert frame.asks[0].seat == "first" and world.legal(frame.state) == ("1", "2", "3")
    told = frame.asks[0].say[0].content
    assert "Take 1, 2 or 3." in told and "stones 8" in told and "Legal moves: 1, 2, 3" in told and "Stones." in told
    frame = say(world, frame, "\\boxed{3}")
    assert frame.asks[0].seat == "second" and "stones 5" in frame.asks[0].say[0].content
    frame = say(world, frame, "<think>1?</think> I take **2**.")
    frame = say(world, frame, "Answer: 3.")
    assert not frame.asks and frame.pay == {("first", ""): 1.0, ("second", ""): -1.0}
    assert frame.facts["result"] == "first" and frame.facts["plies"] == 3


def test_a_single_legal_move_is_made():
    frame = asyncio.run(pl.worlds.WrittenGame().reset(task(2), ("k",)))
    frame = say(pl.worlds.WrittenGame(), frame, "1")
    assert not frame.asks and frame.facts["result"] == "second"


def test_five_replies_without_a_legal_move_lose():
    world = pl.worlds.WrittenGame(rival="search", iterations=10)
    frame = asyncio.run(world.reset(task(), ("k",)))
    for text in ("none", "4", "-1", "2.5"):
        frame = say(world, frame, text)
        assert frame.asks[0].say[0].content.startswith("That is no legal move.") and not frame.pay
    frame = say(world, frame, "")
    assert frame.pay == {("player", ""): -1.0} and frame.facts["illegal:player"] == 5
    assert frame.facts["result"] == "illegal:first"


def test_a_rival_moves_in_the_other_seat():
    world = pl.worlds.WrittenGame(rival="exact", iterations=10)
    frame = asyncio.run(world.reset(task(9, second=1), ("k",)))
    assert frame.state.view.actions == (1,) and frame.state.view.seat == 1  # 8 are left, which is lost for who moves
    while frame.asks:
        frame = say(world, frame, "1")
    assert frame.pay == {("player", ""): -1.0} and frame.facts["result"] == "first"


def test_a_game_that_breaks_pays_nobody():
    broken = replace(
        game(), code=TAKE.replace("HEAP", "8").replace("self.stones -= action", "self.stones -= 3 // (action - 2)")
    )
    world = pl.worlds.WrittenGame()
    frame = asyncio.run(world.reset(pl.worlds.WrittenGameTasks().task_of(broken, "t"), ("k",)))
    frame = say(world, frame, "2")
    assert not frame.asks and not frame.pay and frame.status == "truncated:broken"
    assert frame.facts["result"] == "broken" and "ZeroDivisionError" in frame.facts["broke"]


def test_the_oracle_says_a_winning_move():
    world = pl.worlds.WrittenGame(iterations=10)
    frame = asyncio.run(world.reset(task(7), ("k",)))
    assert asyncio.run(world.oracle(frame.state)) == "3"


def test_moves_are_read_from_any_form():
    forms = {
        "12": 12,
        "<answer>3</answer>": 3,
        "I play 4, then 5.": 5,
        "x3": None,
        "": None,
        "3.5": None,
        "<think>3": None,
    }
    assert {text: move_of(text) for text in forms} == forms


def test_the_grammar_is_split_and_its_games_begin():
    bench, _ = bench_by_name("written-games(brief=True)")
    train = {bench.tasks.task("train", i).meta["title"] for i in range(60)}
    held = {bench.tasks.task("test", i).meta["title"] for i in range(60)}
    assert not train & held and len(held) > 10
    for family in FAMILIES:
        frame = asyncio.run(view_game(draw_code(family), [], -1, 0, 0, "0"))
        assert len(frame.legal) > 1 and frame.board, family
    assert len({draw_rules(np.random.default_rng(i)).title.split()[0] for i in range(40)}) == 5


def test_files_of_games(tmp_path):
    file = tmp_path / "games.jsonl"
    rows = [{"rules": f"r{i}", "code": TAKE.replace("HEAP", str(4 + i)), "title": f"t{i}"} for i in range(20)]
    file.write_text("\n".join(json.dumps(r) for r in rows) + "\n\n")
    bench, _ = bench_by_name(f"written-games(file='{file}')")
    titles = {s: {bench.tasks.task(s, i).meta["title"] for i in range(40)} for s in ("train", "test")}
    assert not titles["train"] & titles["test"] and len(titles["train"] | titles["test"]) == 20
    assert bench.tasks.size + bench.tasks.test_size == 20
    folder = tmp_path / "data"
    for name, text in (("envs/env_2.py", "c"), ("descriptions/2.txt", "d"), ("actions/2.txt", "a")):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    assert [(g.title, g.rules, g.moves, g.code) for g in read_games(str(folder))] == [("game 2", "d", "a", "c")]


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "has no games"),
        ("no json", r":1: no JSON"),
        ('{"rules": "r"}', "a line is a game with"),
        ('{"rules": "r", "code": "c", "title": "t"}\n' * 2, "two games with the title 't'"),
    ],
)
def test_bad_files_are_refused(tmp_path, text, why):
    file = tmp_path / "games.jsonl"
    file.write_text(text)
    with pytest.raises(UserError, match=why):
        read_games(str(file))


def test_bad_settings_are_refused(tmp_path):
    for spec, why in {
        "written-games(rival='strong')": "none, search, agent or exact",
        "written-games(iteration=3)": "iterations",
        "written-games(brief=3)": "true or false",
        f"written-games(file='{tmp_path}/no')": "no such file",
    }.items():
        with pytest.raises(UserError, match=why):
            bench_by_name(spec)
    assert Ask(seat="first").choices is None and bench_by_name("written-games(illegal='never')")[0].max_turns > 100
