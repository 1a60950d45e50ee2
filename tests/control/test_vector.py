"""Vectorised environments of Gymnasium, and observations that are dictionaries."""

import asyncio

import numpy as np
import palaestra as pl
import pytest
from palaestra.errors import UserError

gymnasium = pytest.importorskip("gymnasium")
from gymnasium.vector import AutoresetMode, SyncVectorEnv  # noqa: E402


class Told(gymnasium.Env):
    """Counts to an end that the seed draws, and pays the count; what is seen is a dictionary."""

    observation_space = gymnasium.spaces.Dict(
        {"count": gymnasium.spaces.Box(0, 9, (2,)), "even": gymnasium.spaces.Discrete(2)}
    )
    action_space = gymnasium.spaces.Discrete(2, start=3)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.at, self.end = 0, int(self.np_random.integers(2, 6))
        return self.seen(), {}

    def seen(self):
        return {"count": np.array([self.at, self.end], np.float32), "even": self.at % 2}

    def step(self, action):
        assert action in (3, 4)
        self.at += 1
        return self.seen(), float(self.at), self.at == self.end, False, {}


def draws(obs, legal, rng):
    return {"act": rng.integers(2, size=obs.shape[:2])}


def played(sim, act=draws, n=6):
    paths = pl.control.play_games(sim, act, n, ("vector",))
    sim.close()
    return paths


def test_observations_that_are_dictionaries_are_flattened():
    sim = pl.control.GymSimulator(Told, horizon=8)
    assert (sim.observation, sim.actions) == (4, 2)
    games = played(sim)
    first = games["obs"][:, 0, 0]
    assert (first[:, 0] == 0).all() and (first[:, 2:] == [1, 0]).all()  # the count, its end, and the one-hot of "even"
    steps = games["alive"].sum(1)
    assert (steps == first[:, 1]).all() and len(set(steps.tolist())) > 1
    assert pl.control.returns_of(games) == pytest.approx(steps * (steps + 1) / 2)
    low, high = sim.bounds
    assert (low.tolist(), high.tolist()) == ([0, 0, 0, 0], [9, 9, 1, 1])
    learner = pl.control.DoubleQ(games=2, updates=1, batch=4)
    assert asyncio.run(learner.learn(pl.control.GymSimulator(Told, horizon=8), 20, ("dict",))).observation == 4


@pytest.mark.parametrize("mode", [AutoresetMode.NEXT_STEP, AutoresetMode.SAME_STEP], ids=lambda m: m.name)
def test_copies_of_one_call_play_the_games_of_copies_one_by_one(mode):
    """Whenever a copy begins anew, its last observation stays what it was, and nothing that follows is paid."""
    make = lambda n: SyncVectorEnv([Told] * n, autoreset_mode=mode)
    one, all_at_once = played(pl.control.GymSimulator(Told, 8)), played(pl.control.VectorSimulator(make, 8))
    assert {k: v.shape for k, v in one.items()} == {k: v.shape for k, v in all_at_once.items()}
    for name, column in one.items():
        assert (column == all_at_once[name]).all(), name


@pytest.mark.parametrize("name, size", [("Acrobot-v1", 3), ("Pendulum-v1", 1)])
def test_a_standard_environment_by_its_id(name, size):
    act = draws if size == 3 else lambda o, legal, rng: {"act": rng.uniform(-2, 2, (*o.shape[:2], 1))}
    one, other = (played(kind(name, 20), act) for kind in (pl.control.GymSimulator, pl.control.VectorSimulator))
    for column in ("obs", "next_obs", "reward", "over", "alive"):
        assert one[column] == pytest.approx(other[column], abs=1e-6)


def test_the_environments_own_arrays():
    """CartPole steps all copies at once: its poles fall when a copy says so, and no limit ends a game."""
    sim = pl.control.simulator_by_name("vector:CartPole-v1")
    assert sim.horizon == 500 and "CartPoleVectorEnv" in str(type(sim._envs[1].unwrapped))
    right = lambda o, legal, rng: {"act": np.ones(o.shape[:2], int)}
    games = played(sim, right, 16)
    assert games["over"].any(1).all() and 7 < games["alive"].sum(1).mean() < 12
    assert (pl.control.returns_of(games) == games["alive"].sum(1)).all()
    again = played(pl.control.VectorSimulator("CartPole-v1"), right, 16)
    assert (again["obs"] == games["obs"]).all()
    short = pl.control.VectorSimulator(
        lambda n: gymnasium.make_vec("CartPole-v1", num_envs=n, vectorization_mode="vector_entry_point"), 5
    )
    assert not played(short, n=4)["over"].any()  # the horizon cuts it


def test_what_cannot_be_is_said(tmp_path):
    with pytest.raises(UserError, match="needs a horizon"):
        pl.control.VectorSimulator(lambda n: SyncVectorEnv([Told] * n))
    with pytest.raises(UserError, match="NoSuchThing"):
        pl.control.VectorSimulator("NoSuchThing-v0")
    sim = pl.control.VectorSimulator("CartPole-v1")
    old = sim.reset(pl.rng_of(("old",)), 2)
    sim.step(old, np.zeros((2, 1), int), pl.rng_of(("old",)))
    with pytest.raises(UserError, match="older state"):
        sim.step(old, np.zeros((2, 1), int), pl.rng_of(("old",)))
    (tmp_path / "own.py").write_text(
        "import gymnasium\ndef make():\n    return gymnasium.make_vec('CartPole-v1', num_envs=2)\n"
    )
    with pytest.raises(UserError, match="VectorSimulator\\(make, horizon\\)"):
        pl.control.simulator_by_name(f"{tmp_path}/own.py:make")
