"""PettingZoo's classic games as worlds: masks, seats, results."""

import asyncio
import sys

import pytest
from palaestra.errors import UserError
from palaestra.worlds.adapters.named import world_by_name
from palaestra.worlds.adapters.pettingzoo import PettingZooWorld

from tests.worlds.adapters.conftest import at_random

pytest.importorskip("pettingzoo")
pytestmark = pytest.mark.usefixtures("drawing")
CHOICE = at_random(legal="Reply with one of: ")
COLUMNS = ("3", "0", "3", "0", "3", "0", "3")


def text(frame):
    return frame.asks[0].say[-1].content


def test_both_agents_play_and_the_winner_is_paid(episode):
    world = world_by_name("pettingzoo:classic/connect_four-v3(solved=1)")
    frames = episode(world, COLUMNS)
    assert world.seats == ("player_0", "player_1") and [f.asks[0].seat for f in frames[:2]] == ["player_0", "player_1"]
    assert frames[-1].pay == {("player_0", ""): 1.0, ("player_1", ""): -1.0} and frames[-1].status == "finished"
    assert not any(f.pay for f in frames[:-1])


def test_what_the_mask_forbids_is_asked_for_again_and_ends_in_the_penalty(episode):
    frames = episode(world_by_name("pettingzoo:classic/tictactoe-v3(retries=1,penalty=-1)"), ["4", "4", "4"])
    assert text(frames[2]) == "That is no legal action. Reply with one of: 0, 1, 2, 3, 5, 6, 7, 8"
    assert frames[3].pay == {("player_1", ""): 0.0, ("player_2", ""): -1.0} and frames[3].facts["illegal"] == 2


def test_it_lists_the_legal_actions_of_who_moves_next(episode):
    frames = episode(world := world_by_name("pettingzoo:classic/tictactoe-v3"), ["4", "0", "1"])
    assert [world.legal(f.state) for f in frames[:3]] == [tuple("012345678"), tuple("01235678"), tuple("1235678")]
    named = world_by_name("pettingzoo:classic/tictactoe-v3(actions='nw n ne w c e sw s se')")
    assert named.legal(episode(named, ["nw"])[1].state) == ("n", "ne", "w", "c", "e", "sw", "s", "se")


@pytest.mark.parametrize(
    "name", ["classic/tictactoe-v3", "classic/connect_four-v3", "classic/connect_four-v3(against=random)"]
)
def test_the_same_seed_is_the_same_episode_from_every_state(repeats, name):
    for index in range(2):
        frames = repeats(lambda: world_by_name(f"pettingzoo:{name}"), [CHOICE] * 50, index)
        assert not frames[-1].asks and frames[-1].facts["illegal"] == 0


def test_an_opponent_takes_the_other_seats_in_turn(episode):
    world = world_by_name("pettingzoo:classic/tictactoe-v3(against=random)")
    first, second = (episode(world, [CHOICE] * 9, i) for i in (0, 1))
    assert (
        world.seats == ("policy",) and "You are player_1." in text(first[0]) and "You are player_2." in text(second[0])
    )
    assert set(first[-1].pay) == set(second[-1].pay) == {("policy", "")}


def test_own_environment_renderer_and_names(episode):
    from pettingzoo.classic import tictactoe_v3

    squares = "nw n ne w c e sw s se"
    world = PettingZooWorld(
        tictactoe_v3.env, render=lambda seen, agent: f"{agent}: {int(seen['observation'].sum())}", actions=squares
    )
    frames = episode(world, ["I take C", "nw"])
    assert [text(f) for f in frames] == ["player_1: 0", "player_2: 1", "player_1: 2"]
    assert frames[-1].state.actions == ("4", "0")


def test_a_game_that_cannot_be_imported_is_a_line(monkeypatch):
    """As without pygame, which the library wraps in an error of its own."""
    monkeypatch.setitem(sys.modules, "pettingzoo.classic.go.go", None)
    with pytest.raises(UserError, match="install what this family needs, pygame-ce") as error:
        world_by_name("pettingzoo:classic/go-v5(against=random)")
    assert "\n" not in str(error.value)


def test_silence_that_pays_better_than_defeat_is_said():
    for given, n in (("", 1), ("(penalty=-1)", 0)):
        assert len(asyncio.run(world_by_name(f"pettingzoo:classic/tictactoe-v3{given}").remarks())) == n


@pytest.mark.parametrize(("name", "says"), [
    ("pettingzoo:classic/tictactoe-v2", "no environment 'classic/tictactoe-v2'; did you mean classic/tictactoe-v3"),
    ("pettingzoo:classic/tictactoe-v3(foo=1)", "unexpected keyword argument 'foo'"),
    ("pettingzoo:classic/tictactoe-v3(against=mcts)", "no opponent 'mcts'"),
])  # fmt: skip
def test_mistakes(name, says):
    with pytest.raises(UserError) as error:
        world_by_name(name)
    assert says in str(error.value) and "\n" not in str(error.value)
