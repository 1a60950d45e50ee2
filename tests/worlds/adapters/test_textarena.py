"""textarena's games as worlds: the game says what a reply is, and who wins."""

import random

import pytest
from palaestra.errors import UserError
from palaestra.worlds.adapters.named import world_by_name
from palaestra.worlds.adapters.textarena import TextArenaWorld

pytest.importorskip("textarena")


def text(frame):
    return frame.asks[0].say[-1].content


def test_two_players(episode):
    world = world_by_name("textarena:TicTacToe-v0")
    frames = episode(world, ["[0]", "[3]", "[1]", "", "[4]", "[2]"])
    assert world.seats == ("p0", "p1") and frames[-1].pay == {("p0", ""): 1.0, ("p1", ""): -1.0}
    assert "[GAME] You are Player 1 in Tic Tac Toe." in text(frames[1]) and frames[1].asks[0].seat == "p1"
    assert text(frames[4]).startswith("An empty reply is no move.") and frames[-1].facts["illegal"] == 1
    lost = episode(world, ["[0]", "[0]", "[0]"])[-1]
    assert lost.pay == {("p0", ""): 1.0, ("p1", ""): -1.0} and "occupied" in lost.facts["reason"]


@pytest.mark.parametrize(("name", "replies"), [
    ("GuessTheNumber-v0", [f"[{n}]" for n in range(1, 10)]), ("TicTacToe-v0", ["[0]", "[3]", "[1]", "[4]", "[2]"]),
    ("Blackjack-v0", ["[hit]", "[stand]"] * 5),
])  # fmt: skip
def test_the_same_seed_is_the_same_episode_and_nothing_else_is_seeded(repeats, name, replies):
    random.seed(7)
    before = random.getstate()
    repeats(lambda: world_by_name(f"textarena:{name}"), replies)
    assert random.getstate() == before


def test_seeds_differ(episode):
    world = world_by_name("textarena:GuessTheNumber-v0")
    hints = {tuple(f.state_key[-9:] for f in episode(world, ["[10]"], i)) for i in range(12)}
    assert len(hints) > 1 and world.seats == ("policy",)


def test_an_opponent_of_ones_own(episode):
    world = TextArenaWorld(
        "TicTacToe-v0", against=lambda messages, rng: "[3]" if "X" not in messages[0].content[-200:] else "[4]"
    )
    assert episode(world, ["[0]", "[1]", "[2]"])[-1].pay == {("policy", ""): 1.0}


@pytest.mark.parametrize(("name", "says"), [
    ("textarena:TicTacTo-v0", "textarena has no game 'TicTacTo-v0'; did you mean TicTacToe-v0"),
    ("textarena:TicTacToe-v0(against=random)", "does not list its moves"),
])  # fmt: skip
def test_mistakes(name, says):
    with pytest.raises(UserError) as error:
        world_by_name(name)
    assert says in str(error.value) and "\n" not in str(error.value)
