"""open_spiel's games as worlds: seats, results, opponents, chance."""

import asyncio
import json

import pytest
from palaestra.cli.main import main
from palaestra.errors import UserError
from palaestra.rollout.play import play
from palaestra.rollout.player import Script
from palaestra.types import rng_of
from palaestra.worlds.adapters.named import world_by_name
from palaestra.worlds.adapters.spiel import SpielWorld

from tests.worlds.adapters.conftest import at_random

pyspiel = pytest.importorskip("pyspiel")
WON = ("x(0,0)", "o(1,0)", "x(0,1)", "o(1,1)", "x(0,2)")


def text(frame):
    return frame.asks[0].say[-1].content


def test_both_seats_play_and_the_winner_is_paid(episode):
    world = world_by_name("spiel:tic_tac_toe")
    frames = episode(world, WON)
    assert world.seats == ("p0", "p1") and [f.asks[0].seat for f in frames[:-1]] == ["p0", "p1"] * 2 + ["p0"]
    assert frames[-1].pay == {("p0", ""): 1.0, ("p1", ""): -1.0} and frames[-1].status == "finished"
    assert not any(f.pay for f in frames[:-1]) and world.solved == 1.0
    assert "You are p1.\n...\n...\n..." not in text(frames[1]) and "You are p1.\nx..\n...\n..." in text(frames[1])
    assert text(frames[1]).endswith("legal actions: o(0,1), o(0,2), o(1,0), o(1,1), o(1,2), o(2,0), o(2,1), o(2,2)")


@pytest.mark.parametrize(
    "name", ["tic_tac_toe", "kuhn_poker", "leduc_poker", "hex(board_size=3)", "pig(winscore=8)", "matrix_rps", "blackjack",
             "negotiation", "bargaining", "trade_comm",
             "tic_tac_toe(against=random)", "kuhn_poker(against=random)", "tic_tac_toe(against=mcts,simulations=4)"],
)  # fmt: skip
def test_the_same_seed_is_the_same_episode_from_every_state(repeats, name):
    if "mcts" in name:
        pytest.importorskip("scipy")
    world = world_by_name(f"spiel:{name}")

    def choose(frame):
        ways = world.legal(frame.state)
        return ways[int(rng_of((text(frame), frame.state.turns)).integers(len(ways)))]

    for index in range(4):
        frames = repeats(lambda: world_by_name(f"spiel:{name}"), [choose] * 60, index)
        assert not frames[-1].asks and frames[-1].facts["illegal"] == 0


def test_a_game_that_draws_itself_is_drawn_by_the_seed_of_the_episode(episode):
    """negotiation holds a generator of its own: played anew, it was another game in the middle of an episode."""
    world = SpielWorld("negotiation")
    starts = {seed: str(world.deal(seed)) for seed in range(4)}
    for seed in starts:
        state = world.deal(seed)
        state.apply_action(state.legal_actions()[0])
        starts[seed] = str(state)
    assert len(set(starts.values())) == 4
    again = world.deal(2)
    again.apply_action(again.legal_actions()[0])
    assert str(again) == starts[2]
    fixed = SpielWorld("negotiation", settings=(("rng_seed", 7),))
    assert fixed.deal(1).get_game() == fixed.deal(2).get_game()


def test_sums_are_zero_and_chance_follows_the_seed(episode):
    world = world_by_name("spiel:leduc_poker")
    ends = [episode(world, [at_random()] * 30, index)[-1] for index in range(12)]
    assert all(e.pay[("p0", "")] == -e.pay[("p1", "")] for e in ends)
    assert len({e.state_key for e in ends}) > 6 and world.solved is None


def test_an_opponent_takes_the_other_seats_in_turn(episode):
    world = world_by_name("spiel:tic_tac_toe(against=random)")
    first, second = (episode(world, [at_random()] * 9, index) for index in (0, 1))
    assert world.seats == ("policy",)
    assert {f.asks[0].seat for f in (*first[:-1], *second[:-1])} == {"policy"}
    assert (
        "You are p0" in text(first[0])
        and "You are p1" in text(second[0])
        and "x" in second[0].state_key.split("legal")[0]
    )
    assert set(first[-1].pay) == {("policy", "")}


def test_a_search_is_a_harder_opponent_than_chance(episode):
    """Who plays at random draws or loses against 50 playouts a move, and sometimes wins against chance."""
    pytest.importorskip("scipy")

    def paid(against):
        world = SpielWorld("tic_tac_toe", against=against, simulations=50)
        return [episode(world, [at_random()] * 9, i)[-1].pay[("policy", "")] for i in range(10)]

    assert max(paid("random")) == 1.0 and max(paid("mcts")) <= 0.0


def test_an_opponent_of_ones_own(episode):
    """It sees what the seat is shown, and has its own randomness."""

    def last(messages, rng):
        return messages[-1].content.rpartition(", ")[2]

    frames = episode(SpielWorld("tic_tac_toe", against=last), ["x(0,0)", "x(0,1)", "x(0,2)"])
    assert frames[-1].state.actions == ("0", "8", "1", "7", "2") and frames[-1].pay == {("policy", ""): 1.0}
    silent = SpielWorld("tic_tac_toe", against=lambda messages, rng: "pass")
    with pytest.raises(UserError, match="the opponent says 'pass'; That is no legal action"):
        episode(silent, ["x(0,0)"])


def test_a_player_without_a_move_loses(episode):
    end = episode(world_by_name("spiel:tic_tac_toe(retries=0)"), ["x(0,0)", "x(0,1)"])[-1]
    assert end.pay == {("p0", ""): 1.0, ("p1", ""): -1.0} and end.facts["illegal"] == 1
    end = episode(world_by_name("spiel:kuhn_poker(retries=0)"), ["check"])[-1]
    assert end.pay == {("p0", ""): -2.0, ("p1", ""): 2.0}
    end = episode(world_by_name("spiel:kuhn_poker(retries=0,penalty=-5)"), ["check"])[-1]
    assert end.pay == {("p0", ""): -5.0, ("p1", ""): 5.0}


def test_bounds_are_those_of_the_game_and_of_a_forfeit():
    """Kuhn poker is won or lost by 2; a penalty of -5 goes to the other. A game that pays on the way has none."""
    of = lambda name: world_by_name(f"spiel:{name}")
    assert of("kuhn_poker").bounds == (-2.0, 2.0) and of("kuhn_poker(penalty=-5)").bounds == (-5.0, 5.0)
    assert of("catch").bounds == (-1.0, 1.0) and of("cliff_walking").bounds is None


def test_only_a_forfeit_that_is_no_loss_is_said():
    for given, n in (("", 0), ("(penalty=0)", 1)):
        assert len(asyncio.run(world_by_name(f"spiel:kuhn_poker{given}").remarks())) == n


def test_own_renderer(episode):
    world = SpielWorld("tic_tac_toe", render=lambda state, player: f"{player}: {state.legal_actions()[:2]}")
    assert text(episode(world, ["x(0,0)"])[1]).endswith("\n\n1: [1, 2]")


def test_a_game_through_play():
    world = world_by_name("spiel:kuhn_poker")

    def either(messages, rng):
        return str(rng.choice(["Pass", "Bet"]))

    cast = {seat: Script(fn=either) for seat in world.seats}
    played = asyncio.run(play(world, cast, world.task("train", 0), ("k",), ("w",)))
    assert played.ok and played.reward.parts["seat:p0"] == -played.reward.parts["seat:p1"] != 0
    assert {r.seat for r in played.rows} == {"p0", "p1"} and rng_of(("x",)) is not None


@pytest.mark.parametrize(("name", "says"), [
    ("spiel:tic_tac_to", "open_spiel has no game 'tic_tac_to'; did you mean tic_tac_toe"),
    ("spiel:hex(bored_size=3)", "spiel:hex has no setting 'bored_size'; did you mean board_size?"),
    ("spiel:hex(against=ranom)", "no opponent 'ranom'; did you mean random?"),
    ("spiel:2048(against=random)", "spiel:2048 has one player; leave out against"),
    ("spiel:kuhn_poker(against=mcts)", "hides something"),
    ("spiel:mfg_garnet", "a game of crowds"),
])  # fmt: skip
def test_mistakes(name, says):
    if "mcts" in name:
        pytest.importorskip("scipy")
    with pytest.raises(UserError) as error:
        world_by_name(name)
    assert says in str(error.value) and "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("name", "of"), [("spiel:tic_tac_toe(against=random)", "accuracy"), ("spiel:kuhn_poker", "reward")]
)
def test_a_run_from_the_command_line(tmp_path, monkeypatch, capsys, name, of):
    monkeypatch.chdir(tmp_path)
    assert main(["train", "--task", name, "--smoke", "--out", "run"]) == 0, capsys.readouterr().err
    assert json.loads((tmp_path / "run/summary.json").read_text())[f"{of}_after"]["n"] == 4
    assert main(["eval", "--model", "run/checkpoints/step-2", "--task", name, "--n", "4", "--k", "1"]) == 0
