"""Gymnasium's own environments as worlds: what is shown, what an action is, how an episode ends."""

import asyncio
import json

import numpy as np
import pytest
from palaestra.abilities import KnowsSolved
from palaestra.cli.main import main
from palaestra.errors import Fault, UserError
from palaestra.rollout.play import play
from palaestra.rollout.player import Script
from palaestra.run.checks import check_bench
from palaestra.types import World
from palaestra.worlds.adapters import base
from palaestra.worlds.adapters.gymnasium import GymnasiumWorld, name_colours
from palaestra.worlds.adapters.named import world_by_name

from tests.worlds.adapters.conftest import frames_of, stepped

gymnasium = pytest.importorskip("gymnasium")
DRY = "gym:FrozenLake-v1(is_slippery=False)"
WAY = ("down", "down", "right", "right", "down", "right")  # to the goal, around the holes


class Odd(gymnasium.Env):
    """Counts to three; what it does beside that is set from outside."""

    observation_space = gymnasium.spaces.Box(0, 1, (2,))
    action_space = gymnasium.spaces.Discrete(2, start=5)
    reward, cut, broken, noise = 0.5, False, False, False
    drawn = np.random.default_rng(0)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.n = 0
        return self.seen(), {}

    def step(self, action):
        self.n += 1
        if self.broken:
            raise ZeroDivisionError("inside")
        over = self.n == 3
        return self.seen(), self.reward, over and not self.cut, over and self.cut, {}

    def seen(self):
        return (self.drawn if self.noise else self.np_random).random(2)


def odd(**about):
    return GymnasiumWorld(type("MyOdd", (Odd,), about))


def text(frame):
    return frame.asks[0].say[-1].content


def test_a_way_to_the_goal_is_paid_at_its_end(episode):
    world = world_by_name(DRY)
    assert isinstance(world, World) and isinstance(world, KnowsSolved)
    frames = episode(world, WAY)
    assert len(frames) == 7 and frames[-1].pay == {("policy", ""): 1.0} and frames[-1].status == "finished"
    assert not any(f.pay for f in frames[:-1])
    assert text(frames[0]).startswith("You are in FrozenLake-v1.\n\n<red>S</red>FFF")
    assert text(frames[0]).endswith("Reply with one of: left, down, right, up")
    assert "You are in" not in text(frames[1]) and frames[1].state_key in text(frames[1])


def test_every_step_is_paid_at_its_turn(episode):
    frames = episode(world_by_name("gym:Taxi-v4"), ["dropoff", "south", "north"])
    assert [dict(f.pay) for f in frames] == [
        {},
        {("policy", ""): -10.0},
        {("policy", ""): -1.0},
        {("policy", ""): -1.0},
    ]


def test_the_last_action_that_is_named_counts(episode):
    frames = episode(world_by_name(DRY), ["Not left: I go Right.", "right-hand? no, 1 or downwards"])
    assert frames[1].state.actions == ("2",)
    assert frames[2].state.actions == ("2",) and frames[2].facts["illegal"] == 1


@pytest.mark.parametrize(("name", "replies"), [
    (DRY, [*WAY[:3], "what?", *WAY[3:]]), ("gym:FrozenLake-v1", ["down"] * 6), ("gym:Taxi-v4", ["south", "east", "pickup"]),
    ("gym:Blackjack-v1", ["hit", "hit", "stick"]), ("gym:CartPole-v1", ["left"] * 8), ("gym:Pendulum-v1", ["[0.5]", "[-1]"]),
    ("gym:CliffWalking-v1(memory=False)", ["up", "no", "right", "down"]),
])  # fmt: skip
def test_the_same_seed_is_the_same_episode_from_every_state(repeats, name, replies):
    for index in (0, 1, 5):
        repeats(lambda: world_by_name(name), replies, index)


def test_tasks_differ_and_splits_too():
    world = world_by_name("gym:Taxi-v4")
    seeds = [world.task(split, i).meta["seed"] for split in ("train", "test") for i in range(20)]
    assert len(set(seeds)) == 40


def test_a_reply_that_is_no_action_is_asked_for_again_and_then_ends_it(episode):
    world = world_by_name("gym:FrozenLake-v1(is_slippery=False,retries=1,penalty=-0.5)")
    frames = episode(world, ["down", "fly", "swim"])
    assert text(frames[2]) == "That is no legal action. Reply with one of: left, down, right, up"
    assert frames[3].pay == {("policy", ""): -0.5} and frames[3].status == "finished"
    assert frames[3].facts == {"actions": 1, "illegal": 2, "executed": (True, False, False)}


def test_without_memory_everything_is_shown_every_time(episode):
    world = world_by_name("gym:FrozenLake-v1(is_slippery=False,memory=False,intro='Reach G.')")
    frames = episode(world, ["down", "fly"])
    assert all(f.asks[0].new_row and text(f).startswith("Reach G.\n\n") for f in frames)
    assert "That is no legal action" in text(frames[2]) and "<red>F</red>" in text(frames[2])


def test_truncation_is_a_status(episode):
    frames = episode(odd(cut=True), ["5", "6", "5"])
    assert frames[-1].status == "truncated:environment" and frames[-1].pay == {("policy", ""): 0.5}
    limited = world_by_name("gym:FrozenLake-v1(max_episode_steps=3)")
    assert limited.max_turns == 6 and episode(limited, ["left"] * 3)[-1].status == "truncated:environment"


def test_a_world_ends_an_episode_itself_where_turns_run_out(episode):
    class Short(GymnasiumWorld):
        max_turns = 2

    frames = episode(Short(lambda: Odd()), ["5", "5", "5"])
    assert len(frames) == 3 and frames[-1].status == "truncated:turns" and frames[-1].pay == {("policy", ""): 0.5}


def test_what_breaks_inside_is_a_status_and_no_reward():
    world = odd(broken=True)
    played = asyncio.run(play(world, {"policy": Script(fn=lambda m, rng: "5")}, world.task("train", 0), ("k",), ("w",)))
    assert played.status == "error:environment" and played.reward is None
    assert "MyOdd: ZeroDivisionError: inside" in played.facts["error"]
    with pytest.raises(Fault, match="pays nan"):
        asyncio.run(step_once(odd(reward=float("nan"))))


async def step_once(world):
    frame = await world.reset(world.task("train", 0), ())
    (ask,) = frame.asks
    return await stepped(world, frame, "5" if ask else "")


def test_a_fork_of_what_does_not_repeat_itself_is_refused():
    async def fork(world):
        frames = await frames_of(world, ["5", "5"])
        await stepped(world, frames[1], "6")

    asyncio.run(fork(odd()))
    with pytest.raises(UserError, match="does not repeat itself"):
        asyncio.run(fork(odd(noise=True)))


def test_room_follows_the_episodes_in_flight(monkeypatch):
    """Of ten at a time with room for four, some are played anew once; after that all are kept. One
    that is given up does not hold the room of the others.
    """
    monkeypatch.setattr(base, "KEPT", 4)
    made = []

    class Counted(Odd):
        def reset(self, **given):
            made.append(self)
            return super().reset(**given)

    async def rounds(world, n=10):
        frames = [await world.reset(world.task("train", i), ()) for i in range(n)]
        counts = [len(made)]
        for _ in range(2):
            frames = [await stepped(world, f, "5") for f in frames]
            counts.append(len(made))
        assert all(f.state.turns == 2 for f in frames)
        return counts

    world = GymnasiumWorld(Counted)
    begun, once, twice = asyncio.run(rounds(world))
    assert (begun, world.lives.room) == (10, 16) and once > 10 and twice == once
    made.clear()
    assert asyncio.run(rounds(world)) == [10, 10, 10]  # the ten before were never taken on
    assert len(world.lives.kept) == world.lives.running == 16


def test_own_renderer_and_reader(episode):
    def read(said):
        return {"stay": 5, "go": 6}.get(said) or int(said)

    world = GymnasiumWorld(Odd, render=lambda seen, info: f"{len(seen)} numbers", read=read, solved=1.5)
    frames = episode(world, ["go", "stand", "7", "stay", "6"])
    assert [text(f) for f in frames[:2]] == ["2 numbers", "2 numbers"]
    assert text(frames[2]).startswith("That is no legal action: invalid literal")
    assert text(frames[3]) == "That is no legal action."
    assert frames[-1].state.actions == ("6", "5", "6") and frames[-1].status == "finished"


def test_colours_are_words():
    assert name_colours("a\x1b[34;1mB\x1b[0mc\x1b[1md\x1b[0m") == "a<blue>B</blue>cd"


@pytest.mark.parametrize(("name", "says"), [
    ("gym:Frozen-v1", "gym:Frozen-v1: Environment `Frozen` doesn't exist. Did you mean: `FrozenLake`?"),
    ("gym:FrozenLake-v1(foo=1)", "unexpected keyword argument 'foo'"),
    ("gym:FrozenLake-v1(retries=x)", "(retries) takes int, not 'x'"),
    ("gym:FrozenLake-v1(is_slippery=false)", "write is_slippery=False"),
    ("gym:FrozenLake-v1(actions='left right')", "actions names 2 actions, Discrete(4) has 4"),
    ("gym:Pendulum-v1(actions='left')", "has none to name"),
    ("gym:FrozenLake-v1+chain", "and nothing beside it"),
    ("gym:", "write gym:NAME or gym:NAME(setting=value)"),
])  # fmt: skip
def test_mistakes(name, says):
    with pytest.raises(UserError) as error:
        world_by_name(name)
    assert says in str(error.value) and "\n" not in str(error.value)


@pytest.mark.parametrize(("name", "told"), [
    ("gym:Blackjack-v1", "is paid 0, and legal play earned as little as -1"),
    ("gym:Blackjack-v1(penalty=0)", "give penalty=-1 or less"),
    ("gym:Blackjack-v1(penalty=-1)", ""),
    ("gym:FrozenLake-v1", ""),
])  # fmt: skip
def test_silence_that_pays_better_than_play_is_said(name, told):
    found = asyncio.run(world_by_name(name).remarks())
    assert len(found) == bool(told) and told in "".join(found)


def test_what_cannot_be_played_is_not_said_of_its_pay():
    assert asyncio.run(odd(reward=-0.5).remarks()) and asyncio.run(odd(broken=True).remarks()) == []


def test_it_is_said_once_before_the_first_step(context, monkeypatch):
    run, said = context(task="gym:Blackjack-v1"), []
    monkeypatch.setattr(run, "say", said.append)
    asyncio.run(check_bench(run))
    assert len([line for line in said if line.startswith("note: gym:Blackjack-v1: who gives no legal action")]) == 1


def test_a_run_from_the_command_line(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    spec = "gym:FrozenLake-v1(is_slippery=False,solved=1)"
    assert main(["train", "--task", spec, "--smoke", "--out", "run"]) == 0, capsys.readouterr().err
    summary = json.loads((tmp_path / "run/summary.json").read_text())
    assert summary["accuracy_after"]["n"] == 4 and "by their seed alone" in summary["caveat"]
    assert main(["train", "--task", "gym:Blackjack-v1", "--smoke", "--out", "mean"]) == 0
    assert json.loads((tmp_path / "mean/summary.json").read_text())["reward_after"]["n"] == 4


LAKE = """
import gymnasium
import palaestra as pl

def make():
    return gymnasium.make("FrozenLake-v1", is_slippery=False)

def render(observation, info):
    return f"row {observation // 4}, column {observation % 4}"

def bad(observation, info):
    return 1 / 0

lake = pl.worlds.GymnasiumWorld(make, render=render, actions="left down right up", intro="Go to row 3, column 3.", solved=1.0)
broken = pl.worlds.GymnasiumWorld(make, render=bad)
number = 3
"""


def test_a_world_of_a_users_file(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "lake.py").write_text(LAKE)
    assert main(["train", "--env", "lake.py:lake", "--smoke", "--out", "run"]) == 0, capsys.readouterr().err
    assert json.loads((tmp_path / "run/summary.json").read_text())["accuracy_after"]["n"] == 4
    assert main(["train", "--env", "lake.py:broken", "--smoke", "--out", "no"]) == 2
    assert "lake.py:12: ZeroDivisionError: division by zero (in broken.reset)" in capsys.readouterr().err
    assert main(["train", "--env", "lake.py:number", "--smoke", "--out", "none"]) == 2
    assert "lake.py:number is int, not a class" in capsys.readouterr().err
