"""Parallel environments of PettingZoo, and environments of a user's file, as simulators."""

import asyncio

import numpy as np
import palaestra as pl
import pytest
from palaestra.errors import UserError

gymnasium = pytest.importorskip("gymnasium")
pettingzoo = pytest.importorskip("pettingzoo")

FILE = """
import gymnasium, pettingzoo, numpy as np

class Race(pettingzoo.ParallelEnv):
    metadata = {"name": "race"}
    max_cycles = 4

    def __init__(self, wide=False):
        self.possible_agents = ["a", "b"]
        self.wide = wide

    def observation_space(self, agent):
        return gymnasium.spaces.Box(-9, 9, (3 if self.wide and agent == "b" else 2,))

    def action_space(self, agent):
        return gymnasium.spaces.Discrete(2)

    def reset(self, seed=None, options=None):
        self.agents, self.at, self.t = list(self.possible_agents), {"a": 0.0, "b": 0.0}, 0
        return self.seen(), {}

    def seen(self):
        return {x: np.array([self.at[x], self.t], np.float32) for x in self.agents}

    def step(self, actions):
        assert set(actions) == set(self.agents)
        self.t += 1
        for x, act in actions.items():
            self.at[x] += act
        done = {x: self.at[x] >= 3 for x in self.agents}
        cut = {x: self.t >= 4 for x in self.agents}
        paid = {x: float(actions[x]) for x in self.agents}
        shown = self.seen()
        self.agents = [x for x in self.agents if not (done[x] or cut[x])]
        return shown, paid, done, cut, {x: {} for x in shown}

def wide():
    return Race(True)

def limited():
    return gymnasium.make("Pendulum-v1", max_episode_steps=7)

def endless():
    return gymnasium.make("Pendulum-v1", max_episode_steps=-1)
"""


@pytest.fixture
def file(tmp_path):
    (tmp_path / "race.py").write_text(FILE)
    return f"{tmp_path}/race.py"


def first_moves(obs, legal, rng):
    """The first agent always moves, the second never."""
    return {"act": np.tile([1, 0], (len(obs), 1))}


def test_a_team_is_played_until_nobody_is_left_or_time_is_up(file):
    sim = pl.control.simulator_by_name(f"{file}:Race")
    assert (sim.agents, sim.horizon, sim.observation, sim.actions) == (2, 4, 2, 2)
    games = pl.control.play_games(sim, first_moves, 2, ("race",))
    assert games["reward"][0].tolist() == [[1, 1, 1, 0], [0, 0, 0, 0]]  # who is there is paid nothing more
    assert games["next_obs"][0, :, :, 1].tolist() == [[1, 2, 3, 0], [1, 2, 3, 4]]  # and sees zeros
    assert not games["over"].any()  # the limit cuts b's game, it is not over
    both = pl.control.play_games(sim, lambda o, legal, rng: {"act": np.ones(o.shape[:2], int)}, 2, ("race",))
    assert both["over"].sum(1).tolist() == [1, 1] and both["alive"].sum(1).tolist() == [3, 3]
    policy = asyncio.run(pl.control.PPO(games=4, bootstrap=True).learn(sim, 16, ("race",)))
    assert policy.observation == 2
    with pytest.raises(UserError, match="older state"):
        old = sim.reset(pl.rng_of(("x",)), 1)
        sim.step(old, np.zeros((1, 2), int), pl.rng_of(("x",)))
        sim.step(old, np.zeros((1, 2), int), pl.rng_of(("x",)))
    sim.close()


def test_environments_of_a_file(file):
    sim = pl.control.simulator_by_name(f"{file}:limited")
    assert (sim.horizon, sim.actions) == (7, pl.control.Box(low=(-2.0,), high=(2.0,)))
    games = pl.control.play_games(sim, lambda o, legal, rng: {"act": np.zeros((*o.shape[:2], 1))}, 2, ("p",))
    assert games["alive"].shape == (2, 7) and not games["over"].any()  # its limit cuts, it does not end
    with pytest.raises(UserError, match="without a time limit; wrap it"):
        pl.control.simulator_by_name(f"{file}:endless")
    with pytest.raises(UserError, match="different spaces"):
        pl.control.simulator_by_name(f"{file}:wide")
    assert pl.control.simulator_by_name("gymnasium:CartPole-v1").horizon == 500


def test_one_environment_is_no_way_to_make_many(tmp_path):
    (tmp_path / "one.py").write_text("import gymnasium\nenv = gymnasium.make('CartPole-v1')\n")
    with pytest.raises(UserError, match="name a function that makes one"):
        pl.control.simulator_by_name(f"{tmp_path}/one.py:env")
